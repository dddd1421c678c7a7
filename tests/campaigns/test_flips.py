"""A flipped bit, a missing end or something else in a file's place: never other numbers, a traceback or a wait."""

import shutil

import pytest

from tests.campaigns.damage import Damaged, DamagedResults
from tests.campaigns.faults import KILLS, NONE, own_part, spread
from tests.campaigns.harm import flips, replacements
from tests.campaigns.scenes import grouped

SAMPLES = {"recombine.json": 1, "index.tsv": 4, "encoder.nc": 4}
"""Flips of some files in the short form; of each other file there are two."""


@pytest.fixture(scope="module")
def killed_store(training, tmp_path_factory):
    """A store as a kill left it, after the last checkpoint."""
    calls = [call for call in training.whole[2] if call.kind == "rename" and call.path.startswith("checkpoints/")]
    assert training.met(calls[-1].number, KILLS[1])[-1] == {"died": 9}
    path = tmp_path_factory.mktemp("killed").resolve() / "store"
    shutil.copytree(training.folder, path)
    return path


@pytest.fixture(params=["finished", "unfinished"])
def damaged(request, zygote, finished_store, killed_store, tmp_path):
    """A store, and the files in it that are harmed; runs are alike, so the files of one will do."""
    if request.param == "finished":
        pristine, run = finished_store, min((finished_store / "runs").iterdir())
        paths = [pristine / "recombine.json", pristine / "index.tsv", *sorted(run.iterdir())]
    else:
        pristine, paths = killed_store, sorted((killed_store / "checkpoints").iterdir())
    return Damaged(zygote, pristine, tmp_path.resolve() / "store"), paths


def flipped(pristine, paths, form, number=2):
    """Flips of all bytes of files, or of some."""
    cases = [
        (str(path.relative_to(pristine)), harm)
        for path in paths
        for harm in spread(flips(path), SAMPLES.get(path.name, number) if form == "sample" else None)
    ]
    return cases if form == "sample" else own_part(cases)


def replaced(pristine, paths, form, number=2):
    """Other harms to files, or some; which ones goes round, so that all are met somewhere."""
    cases = []
    for turn, path in enumerate(paths):
        harms = replacements(path)
        turned = harms[turn % len(harms) :] + harms[: turn % len(harms)]
        chosen = spread(turned, number if form == "sample" else None)
        cases += [(str(path.relative_to(pristine)), harm) for harm in chosen]
    return cases if form == "sample" else own_part(cases)


@pytest.mark.parametrize("cases", [flipped, replaced])
def test_a_harmed_store_gives_the_same_or_says_so(damaged, form, cases):
    store, paths = damaged
    assert store.judged((".", ("nothing",)), store.whole) == []
    failures = store.problems(cases(store.pristine, paths, form))
    assert not failures, grouped(failures)


@pytest.fixture(scope="module")
def results(reproduction, tmp_path_factory):
    """A results folder with the store it was measured on."""
    reproduction.met(0, NONE)
    path = tmp_path_factory.mktemp("results").resolve() / "case"
    shutil.copytree(reproduction.folder, path)
    return path


def kept_files(results):
    """Files of a results folder that are no drawings: those can be drawn again."""
    drawn = {".png", ".svg", ".html"}
    paths = [path for path in sorted((results / "out").rglob("*")) if path.is_file() and path.suffix not in drawn]
    return [path for path in paths if path.name != "claims.json"]


def test_flipped_bits_in_a_results_folder_are_noticed(zygote, results, tmp_path, form):
    folder = DamagedResults(zygote, results, tmp_path.resolve() / "case")
    cases = [("out", ("nothing",)), *flipped(results, kept_files(results), form)]
    failures = folder.problems(cases)
    assert not failures, grouped(failures)


def test_a_harmed_results_folder_is_judged_the_same_or_not_and_made_again(zygote, results, tmp_path, form):
    folder = DamagedResults(zygote, results, tmp_path.resolve() / "case", again=True)
    files = kept_files(results)
    cases = [*flipped(results, files, "sample", 1), *replaced(results, files, form, 1)]
    failures = folder.problems([("out", ("nothing",)), *(spread(cases, 2) if form == "sample" else cases)])
    assert not failures, grouped(failures)
