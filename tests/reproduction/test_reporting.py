"""Data behind figures in a page: in it as far as there is space, else as links."""

import base64
import zlib
from types import SimpleNamespace

import pytest

from recombine.reproduction.reporting import _downloads

CONTENTS = {"large": bytes(range(256)) * 40, "small": b"abc"}
FINDINGS = SimpleNamespace(
    studies=["large", "small", "unused"], results=SimpleNamespace(content=CONTENTS.get),
    figures={"fig1": SimpleNamespace(studies=("small", "large"))},
)  # fmt: skip


@pytest.mark.parametrize(("space", "held"), [(10**6, ["large", "small"]), (100, ["small"]), (10, [])])
def test_data_as_space_allows(space, held):
    made = _downloads(FINDINGS, space)
    assert list(made) == ["large", "small"]
    assert [study for study, content in made.items() if content is not None] == held
    for study in held:
        assert zlib.decompress(base64.b64decode(made[study])) == CONTENTS[study]
