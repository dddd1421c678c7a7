"""Documents: what they promise is in them, and what they name exists."""

import re
from pathlib import Path

import pytest

from recombine.cli import COMMANDS
from recombine.encodings import ENCODINGS
from recombine.holdouts import HOLDOUTS

ROOT = Path(__file__).parents[1]


def test_trust_names_commands_and_tests_that_exist():
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`recombine ([a-z]\w+)", text)) <= set(COMMANDS)
    folders = re.findall(r"tests/\w+", text)
    assert folders
    assert all((ROOT / folder).is_dir() for folder in folders)


@pytest.mark.parametrize("registry", [HOLDOUTS, ENCODINGS], ids=lambda registry: registry.field)
def test_every_holdout_and_code_is_listed_with_its_fields(registry):
    text = (ROOT / "docs" / "holdouts.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \|(.*)$", text, flags=re.MULTILINE))
    for kind, cls in registry.items():
        assert kind in table
        if registry is HOLDOUTS:
            fields = set(cls.model_fields) - {"kind", "factors", "shape"}
            assert fields <= set(re.findall(r"`(\w+)`", table[kind])), kind
