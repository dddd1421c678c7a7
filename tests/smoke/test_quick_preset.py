"""The quick preset, for real: minutes long."""

import json

import pytest

from recombine.papers.forced_rendering import PAPER as DEFAULT
from tests.command import run

pytestmark = pytest.mark.slow


def test_quick_preset_ends_with_every_figure_and_verdict(store_path, tmp_path):
    out = tmp_path / "report"
    assert run("reproduce", "--preset", "quick", "--device", "cpu", "--out", str(out)) == 0
    claims = {claim["claim"]: claim for claim in json.loads((out / "claims.json").read_text())}
    assert list(claims) == list(DEFAULT.claims)
    assert all((out / "figures" / f"{name}.png").exists() for name in DEFAULT.figures)
    assert {claim["verdict"] for claim in claims.values()} <= {"direction only", "exploratory", "not decidable"}
    outcomes = {test["case"]: test["outcome"] for test in claims["C1"]["tests"]}
    assert outcomes["onehot"] == "as claimed"
    assert {test["outcome"] for test in claims["C7"]["tests"]} == {"as claimed"}
    reference = {name: claim["reference"] for name, claim in claims.items() if claim["reference"]}
    assert reference == DEFAULT.reference
