"""One zygote and the scenes for all campaigns; `sample` or `all` of the cases."""

import pytest

from tests.campaigns.faults import Zygote
from tests.campaigns.scenes import SWEEP, Looking, Processes, Reproduction, Scene

FORMS = ["sample", pytest.param("all", marks=pytest.mark.slow)]


@pytest.fixture(scope="package")
def zygote(tmp_path_factory):
    with Zygote(tmp_path_factory.mktemp("zygote").resolve()) as started:
        yield started


@pytest.fixture(scope="package")
def training(zygote, tmp_path_factory):
    """A sweep of two runs."""
    place = tmp_path_factory.mktemp("training").resolve()
    return Scene(zygote, place / "store", place / "log")


@pytest.fixture(scope="package")
def processes(zygote, tmp_path_factory):
    """The same sweep in two processes."""
    place = tmp_path_factory.mktemp("processes").resolve()
    return Processes(zygote, place / "store", place / "log")


@pytest.fixture(scope="package")
def reproduction(zygote, tmp_path_factory):
    """A study, on runs that are trained already."""
    place = tmp_path_factory.mktemp("reproduction").resolve()
    scene = Reproduction(zygote, place / "case", place / "log")
    scene.trained = place / "trained"
    scene.trained.mkdir()
    words = ["reproduce", *scene.words()[1:-4], "--store", str(scene.trained / "store"), "--out", str(place / "first")]
    (outcome,) = zygote.run([["main", *words]], limit=60)
    assert outcome["code"] == 0, outcome
    return scene


@pytest.fixture(scope="package")
def finished_store(zygote, tmp_path_factory):
    """A store with two finished runs."""
    path = tmp_path_factory.mktemp("finished").resolve() / "store"
    (outcome,) = zygote.run([["main", *SWEEP, "--store", str(path)]])
    assert outcome["code"] == 0, outcome
    return path


@pytest.fixture(params=["list", "verify"])
def looking(request, zygote, finished_store, tmp_path):
    """A command that only reads a store."""
    scene = Looking(zygote, tmp_path.resolve() / "store", tmp_path.resolve() / "log")
    scene.finished_store, scene.command = finished_store, request.param
    return scene


@pytest.fixture(params=FORMS)
def form(request):
    """How many cases are tried."""
    return request.param
