"""The quick preset, for real: minutes long."""

import json

import pytest

from recombine.cli import main

pytestmark = pytest.mark.slow


def test_quick_preset_shows_that_bump_codes_do_not_compose(store_path, tmp_path):
    with pytest.raises(SystemExit) as caught:
        main(["reproduce", "--preset", "quick", "--device", "cpu", "--out", str(tmp_path / "report")])
    assert caught.value.code == 0
    (claim,) = json.loads((tmp_path / "report" / "claims.json").read_text())
    outcomes = {case["name"]: case["outcome"] for case in claim["cases"]}
    assert outcomes["onehot"] == "holds"
    assert "fails" not in outcomes.values()
