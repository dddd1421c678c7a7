"""Data behind figures in a page: in it as far as there is space, else as links."""

import base64
import zlib
from types import SimpleNamespace

import pytest

from recombine.reproduction.reporting import _downloads

CONTENTS = {"large": bytes(range(256)) * 40, "small": b"abc"}
FINDINGS = SimpleNamespace(studies=["large", "small", "unused"], results=SimpleNamespace(content=CONTENTS.get))
FIGURES = [SimpleNamespace(studies=("small", "large"))]


@pytest.mark.parametrize(("space", "held"), [(10**6, ["large", "small"]), (100, ["small"]), (10, [])])
def test_data_as_space_allows(space, held):
    made = _downloads(FINDINGS, FIGURES, space)
    assert [(own.study, own.path) for own in made] == [("large", "data/large.nc"), ("small", "data/small.nc")]
    assert [own.study for own in made if own.content is not None] == held
    for own in made:
        if own.content is not None:
            assert zlib.decompress(base64.b64decode(own.content)) == CONTENTS[own.study]
