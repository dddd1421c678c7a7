"""Documents: what they promise is in them, and what they name exists."""

import re
import shlex
from pathlib import Path

import pytest

from recombine.cli import COMMANDS
from recombine.encodings import ENCODINGS
from recombine.holdouts import HOLDOUTS
from recombine.kernels.cpp.plan import BLOCK

ROOT = Path(__file__).parents[1]


def sections(path):
    """A document's text by heading; what comes before the second heading is under the first."""
    parts = re.split(r"^#+ (.+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (" ".join(text.split()) for text in parts[2::2]), strict=True))


@pytest.fixture(scope="module")
def trust():
    return sections(ROOT / "docs" / "trust.md")


def test_trust_says_what_is_promised(trust):
    beginning = trust["What can be trusted"]
    assert "**Accidents are detected.**" in beginning
    assert "**Forgery is not.**" in beginning
    for part in ("The store", "Results"):
        assert {"reading", "writing", "checking", "cleaning"} <= set(re.findall(r"\| (\w+) \|", trust[part]))
    assert "belong to you and be writable by nobody else" in trust["Compiled kernels"]


def test_trust_says_what_is_tested_and_what_is_not(trust):
    tested, untested = trust["What is tested"].split("Not tested, and not promised: ")
    for word in ("kills", "fail", "flipped", "links", "pipes"):
        assert word in tested
    for word in ("power cut", "network file system", "super-user"):
        assert word in untested
    folders = re.findall(r"tests/\w+", tested)
    assert folders
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_trust_says_what_to_do_with_a_store_from_a_stranger(trust):
    advice = dict(re.findall(r"- \*\*([\w, ]+?)\.?\*\*(.*?)(?=- \*\*|$)", trust["From a stranger"]))
    assert {"Results", "Stores", "Kernels", "Specs, masks, targets"} == set(advice)
    assert "`recombine verify DIR`" in advice["Stores"]
    assert "`recombine runs show KEY`" in advice["Stores"]
    assert "`recombine verify DIR`" in advice["Results"]


def test_trust_names_commands_that_exist_and_is_found(trust):
    commands = re.findall(r"`recombine (\w+)", " ".join(trust.values()))
    assert {"runs", "verify", "reproduce"} <= set(commands) <= set(COMMANDS)
    assert "docs/trust.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_training_that_is_shown_pads_nothing():
    """Its width is one of whole blocks of the compiled kernels."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    words = shlex.split(re.search(r"^\S*recombine train .*", text, flags=re.MULTILINE)[0])
    widths = [int(words[at + 1]) for at, word in enumerate(words) if word == "--width"]
    assert widths
    assert all(width % BLOCK == 0 for width in widths)


@pytest.mark.parametrize("registry", [HOLDOUTS, ENCODINGS], ids=lambda registry: registry.field)
def test_every_holdout_and_code_is_listed_with_its_fields(registry):
    text = (ROOT / "docs" / "holdouts.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \|(.*)$", text, flags=re.MULTILINE))
    for kind, cls in registry.items():
        assert kind in table
        if registry is HOLDOUTS:
            fields = set(cls.model_fields) - {"kind", "factors", "shape"}
            assert fields <= set(re.findall(r"`(\w+)`", table[kind])), kind
