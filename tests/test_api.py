"""The public names: what Python, editors and type checkers see of the package."""

from __future__ import annotations

import subprocess
import sys

import recombine as rc


def test_dir_lists_the_public_names_and_nothing_else():
    assert dir(rc) == rc.__all__
    assert {"RunSpec", "train", "diagnose", "reproduce", "Results", "Store", "__version__"} <= set(rc.__all__)
    assert not {"Any", "import_module", "TYPE_CHECKING", "lazy_loader", "annotations"} & {*dir(rc), *vars(rc)}


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, recombine; print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
