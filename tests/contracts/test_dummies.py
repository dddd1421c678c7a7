"""A newly registered part is covered by the contracts without edits elsewhere, and a bad one is caught."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
WORDS = "-m pytest tests/contracts -p tests.contracts.dummies -p no:cacheprovider -p no:xdist -q -rf --tb=line"


@pytest.fixture(scope="module")
def outcome():
    """What the contracts say of an honest dummy and of a wrong one of every family."""
    done = subprocess.run(
        [sys.executable, *WORDS.split(), "-k", "dummy and not dummies and not combinations"], cwd=ROOT,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.stdout


def test_honest_dummies_pass(outcome):
    assert int(re.search(r"(\d+) passed", outcome)[1]) > 40, outcome
    failed = re.findall(r"^FAILED (.+)", outcome, re.MULTILINE)
    assert [name for name in failed if "wrong_dummy" not in name] == []


@pytest.mark.parametrize("family", ["encodings", "holdouts", "decoders"])
def test_wrong_dummies_fail_in_every_family(family, outcome):
    assert re.search(rf"^FAILED tests/contracts/test_{family}.py.*wrong_dummy", outcome, re.MULTILINE), outcome
