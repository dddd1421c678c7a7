"""The first cell of a tutorial installs the wheel that lies beside it."""

import os
import subprocess
import sys
import zipfile

from tests.tutorials.notebooks import NAMES, code_cells

CELL = next(code_cells(NAMES[0]))[2]


def write_wheel(folder, version):
    """The smallest wheel that pip installs."""
    name, info = f"recombine-{version}", f"recombine-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("recombine.py", f"version = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: recombine\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_a_wheel_of_the_folder_is_installed(tmp_path):
    """IPython hands the line to a shell, with its own Python in front."""
    write_wheel(tmp_path, "0.3")
    words = CELL.removeprefix("%")
    settings = {"PIP_TARGET": str(tmp_path / "installed"), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
    command = f"{sys.executable} -m {words}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "installed" / "recombine.py").exists()
