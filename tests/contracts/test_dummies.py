"""A newly registered part is covered by the contracts without edits elsewhere, and a bad one is caught."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def contracts_over_dummies(kind):
    words = [
        sys.executable,
        "-m",
        "pytest",
        "tests/contracts",
        "-p",
        "tests.contracts.dummies",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*words, "-k", "dummy and not dummies", "-q", "-p", "no:xdist"],
        cwd=ROOT, env={**os.environ, "DUMMIES": kind}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", done.stdout)}
    return counts.get("passed", 0), counts.get("failed", 0), done.stdout


def test_honest_dummies_pass():
    passed, failed, text = contracts_over_dummies("honest")
    assert failed == 0, text
    assert passed > 40, text


def test_dishonest_dummies_fail_in_every_family():
    _, failed, text = contracts_over_dummies("dishonest")
    assert failed > 0
    for family in ("test_encodings.py", "test_holdouts.py", "test_decoders.py"):
        assert re.search(rf"FAILED tests/contracts/{family}.*dummy", text), text
