"""Shapes and types are checked at run time in the tests of everything that computes."""

import gc
import os
import pkgutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import jaxtyping
from jaxtyping import install_import_hook

import tests.shape_checks  # noqa: F401  the hook finds it by name

PARTS = [part.name for part in pkgutil.iter_modules(find_spec("recombine").submodule_search_locations)]
LEFT_OUT = {
    "cli",
    "console",
    "errors",
    "files",
    "kernels",
    "keys",
    "manifest",
    "page",
    "papers",
    "records",
    "registry",
    "reproduction",
    "store",
    "sweep",
    "version",
}
install_import_hook(
    [f"recombine.{part}" for part in PARTS if part not in LEFT_OUT],
    "tests.shape_checks.checked",
)

import pytest  # noqa: E402

gc.set_threshold(50_000, 20, 50)  # a tenth of the time would go into walking libraries' objects
TESTS = Path(__file__).parent
INTEGRATION = (
    "browser", "campaigns", "cli", "diagnosis", "docs", "figures", "frozen", "kernels", "package", "page", "papers",
    "reproduction", "smoke", "store", "sweep", "training", "tutorials",
    "contracts/test_combinations.py", "contracts/test_dummies.py", "data/test_end_to_end.py",
    "metrics/test_geometry.py", "metrics/test_registry.py", "test_annotations.py", "test_flag_text.py",
    "test_manifest.py",
)  # fmt: skip
"""Files and folders of tests that start processes, draw figures, or train or differentiate for seconds."""


LONGEST = (
    "smoke", "campaigns", "frozen", "reproduction", "sweep", "training", "remedies", "store", "browser", "kernels",
    "page", "cli",
)  # fmt: skip
"""Folders whose tests begin first, so that no process works on them alone in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark integration tests, which `make check` leaves out and `make test` runs; the longest begin."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # else a process with a full disk would leave half a module
    items.sort(key=lambda item: _turn(item.path))
    gc.freeze()  # modules and tests stay, so that no collection has to walk them
    for item in items:
        if _is_integration(item.path):
            item.add_marker(pytest.mark.integration)


@cache
def _turn(path: Path) -> int:
    folder = path.relative_to(TESTS).parts[0] if TESTS in path.parents else ""
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)


@cache
def _is_integration(path: Path) -> bool:
    return any(TESTS / name in (path, *path.parents) for name in INTEGRATION)


UNCHECKED = (
    "browser", "campaigns", "cli", "docs", "page", "papers", "reproduction", "smoke", "store", "sweep", "tutorials",
)  # fmt: skip
"""Folders whose tests call what the others check, without checking shapes a second time."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    folder = item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else "docs"
    jaxtyping.config.update("jaxtyping_disable", folder in UNCHECKED)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests run side by side; one thread each is fastest and keeps bits the same on every machine size."""
    import torch  # not before, as a process that only hands out tests needs none

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def blank_figures(monkeypatch):
    """Figures of studies without content, drawn without forks, for tests of what is around them.

    Drawing takes longer than all else, and each fork that translates a decoder for the explorer imports as much again.
    """
    from matplotlib import pyplot

    from recombine.reproduction import reporting
    from recombine.reproduction.paper import Findings

    monkeypatch.setattr(Findings, "draw", lambda findings, figure: pyplot.figure(figsize=(1, 1)))
    in_forks = reporting.in_forks
    monkeypatch.setattr(reporting, "in_forks", lambda jobs, count, begin: in_forks(jobs, 1, begin))


@pytest.fixture
def store_path(tmp_path, monkeypatch):
    """A place for a store that no other test sees, and where commands look by default."""
    path = tmp_path / "store"
    monkeypatch.setenv("RECOMBINE_STORE", str(path))
    return path
