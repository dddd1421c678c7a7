"""The completion script that the parser installs: right as far as bash can tell, and of all commands."""

import shutil
import subprocess

import pytest

from recombine.cli import COMMANDS
from tests.command import run


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_takes_its_script(tmp_path):
    script = tmp_path / "recombine"
    assert run("--install-completion", "--shell", "bash", "--output", script) == 0
    text = script.read_text()
    assert all(name in text for name in COMMANDS)
    assert "--encoding" in text
    subprocess.run(["bash", "-n", str(script)], check=True, capture_output=True)
