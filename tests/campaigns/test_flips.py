"""A flipped bit, a missing end or something else in a file's place: never other numbers, a traceback or a wait."""

import shutil

import pytest

from tests.campaigns.damage import Damaged, DamagedResults
from tests.campaigns.faults import KILLS, NONE, spread
from tests.campaigns.harm import flips, replacements
from tests.campaigns.scenes import grouped

FLIPS = {"sample": 5, "all": None}
"""Flips of each file."""
REPLACEMENTS = {"sample": 3, "all": None}
"""Other harms to each file."""


@pytest.fixture(scope="module")
def killed_store(training, tmp_path_factory):
    """A store as a kill left it: after the last call that a condition names."""

    def make(condition):
        call = [call for call in training.whole[2] if condition(call)][-1]
        assert training.met(call.number, KILLS[1])[-1] == {"died": 9}
        path = tmp_path_factory.mktemp("killed").resolve() / "store"
        shutil.copytree(training.folder, path)
        return path

    return make


@pytest.fixture(params=["finished", "unfinished", "index in two files"])
def damaged(request, zygote, killed_store, tmp_path):
    """A store, and the files in it that are harmed."""
    if request.param == "finished":
        pristine, patterns = request.getfixturevalue("finished_store"), ("recombine.json", "index.sqlite", "runs/*/*")
    elif request.param == "unfinished":
        pristine = killed_store(lambda call: call.kind == "rename" and call.path.startswith("checkpoints/"))
        patterns = ("checkpoints/*",)
    else:
        pristine = killed_store(lambda call: call.kind in ("sync", "write") and call.path == "index.sqlite-wal")
        patterns = ("index.sqlite*",)
    store = Damaged(zygote, pristine, tmp_path.resolve() / "store")
    return store, one_of_each_run(harmed_files(pristine, patterns))


def harmed_files(folder, patterns):
    """Paths of files below a folder, with their sizes."""
    return [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]


def one_of_each_run(paths):
    """Runs are alike: the files of one will do."""
    runs = sorted({path.parent.name for path in paths if path.parent.parent.name == "runs"})
    return [path for path in paths if path.parent.name not in runs[1:]]


def cases(pristine, paths, harms, number):
    """Each file with its harms, or so many of them; which ones goes round, so that all are met somewhere."""
    found = []
    for turn, path in enumerate(paths):
        possible = harms(path)
        possible = possible[turn % len(possible) :] + possible[: turn % len(possible)] if possible else []
        found += [(str(path.relative_to(pristine)), harm) for harm in spread(possible, number)]
    return found


@pytest.mark.parametrize(("harms", "numbers"), [(flips, FLIPS), (replacements, REPLACEMENTS)], ids=["flip", "replace"])
def test_a_harmed_store_gives_the_same_or_says_so(damaged, form, harms, numbers):
    store, paths = damaged
    assert paths
    assert store.judged((".", ("nothing",)), store.whole) == []
    failures = store.problems(cases(store.pristine, paths, harms, numbers[form]))
    assert not failures, grouped(failures)


@pytest.fixture(scope="module")
def results(reproduction, tmp_path_factory):
    """A results folder with the store it was measured on."""
    reproduction.met(0, NONE)
    path = tmp_path_factory.mktemp("results").resolve() / "case"
    shutil.copytree(reproduction.folder, path)
    return path


@pytest.mark.parametrize(
    ("harms", "sample", "again"),
    [(flips, 8, False), (flips, 1, True), (replacements, 2, True)],
    ids=["flip", "flip and reproduce", "replace"],
)
def test_a_harmed_results_folder_gives_the_same_or_says_so(zygote, results, tmp_path, form, harms, sample, again):
    folder = DamagedResults(zygote, results, tmp_path.resolve() / "case", again)
    drawn = (".png", ".svg", ".html")
    paths = [path for path in sorted((results / "out").rglob("*")) if path.is_file() and path.suffix not in drawn]
    assert any(path.suffix == ".nc" for path in paths)
    everything = 100 if harms is flips and again else None
    failures = folder.problems(
        [("out", ("nothing",)), *cases(results, paths, harms, {"sample": sample, "all": everything}[form])]
    )
    assert not failures, grouped(failures)
