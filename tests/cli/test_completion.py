"""Completion scripts: right as far as a shell can tell, and they complete."""

import shutil
import subprocess

import pytest

from recombine.cli import COMMANDS
from recombine.cli.completion import SHELLS
from tests.command import captured, run

COMPLETE = """
source {script}
COMP_WORDS=({words}); COMP_CWORD={last}; COMP_LINE="{line}"; COMP_POINT={point}
_recombine
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The file of each shell's script."""
    folder, files = tmp_path_factory.mktemp("completion"), {}
    for shell in SHELLS:
        with pytest.MonkeyPatch.context() as patch, (folder / shell).open("w") as file:
            patch.setattr("sys.stdout", file)
            assert run("completion", shell) == 0
        files[shell] = folder / shell
    return files


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_takes_its_script(shell, scripts):
    text = scripts[shell].read_text()
    assert all(name in text for name in COMMANDS)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", str(scripts[shell])], check=True, capture_output=True)


def completed(script, *words):
    """What bash offers for the last word of a line."""
    line = " ".join(words)
    quoted = " ".join(f'"{word}"' for word in words)
    text = COMPLETE.format(script=script, words=quoted, last=len(words) - 1, line=line, point=len(line))
    return subprocess.run(["bash", "-c", text], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_flags(scripts):
    assert set(completed(scripts["bash"], "recombine", "rep")) == {"report", "reproduce"}
    assert set(COMMANDS) <= set(completed(scripts["bash"], "recombine", ""))
    assert "--encoding" in completed(scripts["bash"], "recombine", "train", "--enc")


def test_a_shell_that_is_not_known_is_one_line(capsys):
    expected = "recombine: shell: 'tcsh' is not allowed; allowed: bash, zsh, fish\n"
    assert captured("completion tcsh", capsys) == (2, "", expected)
