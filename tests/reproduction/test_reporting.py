"""Data behind figures in a page: in it as far as there is space, else as links."""

import base64
import zlib
from types import SimpleNamespace

import pytest

from recombine.reproduction.reporting import _downloads

CONTENTS = {"large": bytes(range(256)) * 40, "small": b"abc"}
FIGURES = {"fig1": SimpleNamespace(studies=("small", "large"))}
RESULTS = SimpleNamespace(content=CONTENTS.get)
FINDINGS = SimpleNamespace(studies=["large", "small", "unused"], results=RESULTS, figures=FIGURES)


@pytest.mark.parametrize(("space", "held"), [(10**6, ["large", "small"]), (100, ["small"]), (10, [])])
def test_data_as_space_allows(space, held):
    made = _downloads(FINDINGS, space)
    assert {study: content is not None for study, content in made.items()} == {own: own in held for own in CONTENTS}
    for study in held:
        assert zlib.decompress(base64.b64decode(made[study])) == CONTENTS[study]
