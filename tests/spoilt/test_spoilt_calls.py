"""Whatever one argument of a public call is, the call succeeds or says in one line of ours what is allowed."""

import re
import subprocess
import sys

import pytest

from tests.spoilt.calls import NOT_CALLED, all_calls, public_names


def drawn(*words):
    command = [sys.executable, "-m", "tests.spoilt.drawing", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_public_name_is_called():
    called = {name.split(".")[0] for name in all_calls()}
    assert public_names() - called - set(NOT_CALLED) == set()
    assert set(NOT_CALLED) <= public_names(), "a name that is public no more"


def test_a_spoilt_argument_is_one_line():
    done = drawn(300, 8)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    arguments = int(re.match(r"(\d+) arguments", done.stdout)[1])
    assert arguments > 300


@pytest.mark.slow
def test_many_spoilt_arguments_are_one_line():
    done = drawn(100_000)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
