"""Nothing is overwritten that this package did not write, and nothing is left behind by a command that is refused."""

import json
import shutil

import pytest
import xarray
from torch import nn

import recombine as rc
from recombine.papers.forced_rendering import PAPER
from recombine.reproduction.reproduce import reproduce
from tests.command import captured, run
from tests.golden import copied
from tests.small import small_spec
from tests.tiny import FLAGS, TINY

GRID = "--grid x=0:3,y=0:3 --holdout center:1:2"
SMALL = "--size 8 --decoder mlp --width 4 --depth 1 --steps 2 --samples 20 --device cpu"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with two runs."""
    path = tmp_path_factory.mktemp("trained") / "store"
    rc.train(small_spec("mlp").seeds(range(2)), path, device="cpu")
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of one study."""
    return copied(tmp_path_factory.mktemp("measured") / "results", "encoding_width")


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A folder with files of somebody's, in which commands are given; the store is elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOMBINE_STORE", str(trained))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / "mine.py").write_text("from torch import nn\ndef decoder():\n    return nn.Linear(2, 16)\n")
    (tmp_path / "site").mkdir()
    for name in ("index.html", "claims.json", "README.md", "page.html", "fig1.png", "data.csv", "data.parquet"):
        (tmp_path / "site" / name).write_text("mine")
    (tmp_path / "images.npz").write_bytes(b"PK\x03\x04 an archive")
    (tmp_path / "table.csv").write_text("key,status,note\n1,done,mine\n")
    return tmp_path


def contents(place):
    return {str(path): path.is_file() and path.read_bytes() for path in place.rglob("*")}


FOREIGN = {
    "explore": f"explore mine.py:decoder {GRID} --out images.npz",
    "explore a page": f"explore mine.py:decoder {GRID} --out site/index.html",
    "diagnose": f"diagnose mine.py:decoder {GRID} --out site",
    "compare": f"compare {SMALL} --remedy wider --out site",
    "reproduce": "reproduce encoder --device cpu --out site --store new",
    "export": "runs export table.csv",
    "export parquet": "runs export site/data.parquet",
    "export a model": "runs export site --layout huggingface {key}",
    "figure": "figure width --from {results} --out site",
    "report": "report {results} --out site",
    "reference": "report {results} --reference site/claims.json",
    "auroc": "report {results} --marker-auroc site/claims.json",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_are_refused_in_one_line(name, place, trained, results, capsys, monkeypatch):
    for slow in ("recombine.sweep.executors.Sweep", "recombine.diagnosis.diagnose", "recombine.page.explore"):
        monkeypatch.setattr(slow, None)  # refused before anything is computed
    (place / "site" / "width.svg").write_text("<svg>mine</svg>")
    before, key = contents(place), next(iter(rc.Store(trained))).key
    code, out, err = captured(FOREIGN[name].format(key=key, results=results), capsys)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "--overwrite" in err
    assert contents(place) == before


@pytest.mark.parametrize("name", ["explore", "diagnose", "export", "export a model", "figure", "report"])
def test_they_are_replaced_where_that_is_asked_for_and_then_without(name, place, trained, results, blank_figures):
    (place / "site" / "width.svg").write_text("<svg>mine</svg>")
    before, key = contents(place), next(iter(rc.Store(trained))).key
    words = FOREIGN[name].format(key=key, results=results).split()
    assert run(*words, "--overwrite") == 0
    assert contents(place) != before
    assert run(*words) == 0  # they are ours by now


def test_a_page_is_saved_over_a_page_and_over_nothing_else(tmp_path):
    page, path = rc.explore(nn.Linear(2, 16), "x=0:3,y=0:3"), tmp_path / "page"
    path.touch()  # an empty file, as `tempfile` makes one
    for _ in range(2):
        assert page.save(path).read_text() == page.html
    path.write_text("<!doctype html>\n<title>recombine</title>")
    with pytest.raises(rc.InvalidValue):
        page.save(path)
    with pytest.raises(rc.InvalidValue):
        page.save(tmp_path)
    assert page.save(path, overwrite=True).read_text() == page.html


def test_a_model_is_saved_into_a_folder_of_its_own(trained, tmp_path):
    stored = next(iter(rc.Store(trained)))
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(rc.InvalidValue):
        stored.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    for overwrite in (True, False):
        assert rc.from_pretrained(stored.save_pretrained(tmp_path, overwrite=overwrite)).stage_names


def test_folders_of_ours_are_written_again(place):
    compare = f"compare {SMALL} --seeds 1 --remedy wider --out both --no-page".split()
    (place / "both").mkdir()
    (place / "both" / ".comparison.nc.999-ab").write_text("of a killed process")
    assert [run(*compare), run(*compare)] == [0, 0]
    assert run(*FOREIGN["diagnose"].replace("site", "both").split()) == 0


def test_an_exported_table_that_was_extended_is_no_longer_ours(place):
    assert [run("runs", "export", "new.csv"), run("runs", "export", "new.csv")] == [0, 0]
    lines = (place / "new.csv").read_text().splitlines()
    (place / "new.csv").write_text("\n".join(f"{line},my note" for line in lines))
    assert run("runs", "export", "new.csv") == 2


def test_reproduce_goes_on_in_its_own_folder(tmp_path, monkeypatch, capsys, blank_figures):
    words = ["reproduce", "encoder", "--device", "cpu", "--processes", "1", *FLAGS, "--set", "seeds=1"]
    words += ["--store", tmp_path / "runs", "--out", tmp_path / "out"]

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("recombine.reproduction.reproduce.train", killed)
        assert [run(*words), run(*words)] == [130, 130]
    assert (tmp_path / "out" / "digests.json").exists()
    assert [run(*words), run(*words)] == [0, 0]
    (tmp_path / "out" / "index.html").write_text("damaged")
    (tmp_path / "out" / "digests.json").unlink()
    capsys.readouterr()
    assert run(*words) == 0, capsys.readouterr().err


def test_reproduce_in_python(tmp_path):
    (tmp_path / "index.html").write_text("mine")
    preset = PAPER.preset_named("quick").changed([*TINY, "seeds=1"])
    words = (PAPER.studies["encoder"], preset, tmp_path / "new", tmp_path)
    with pytest.raises(rc.InvalidValue, match="overwrite=True"):
        reproduce(*words, device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert reproduce(*words, device="cpu", overwrite=True).studies == ["encoder"]


def test_a_report_is_written_for_results_only(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    xarray.Dataset({"degrees": ("day", [1.0])}).to_netcdf(tmp_path / "data" / "weather.nc", engine="h5netcdf")
    (tmp_path / "index.html").write_text("mine")
    code, _, err = captured(f"report {tmp_path}", capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert (tmp_path / "index.html").read_text() == "mine"


def test_verdicts_and_aurocs_are_written_again(tmp_path, monkeypatch):
    folder = copied(tmp_path / "results", "regimes", "markers", "encodings")
    monkeypatch.setattr("recombine.cli.reproduce.written", lambda findings, out, begin: findings.results.path)
    words = ["report", folder, "--reference", tmp_path / "verdicts.json", "--marker-auroc", tmp_path / "auroc.json"]
    assert [run(*words), run(*words)] == [0, 0]
    assert json.loads((tmp_path / "verdicts.json").read_text())


# -- what is refused leaves nothing behind ---------------------------------------------------------------------------

REFUSED = [
    f"train {SMALL} --store new --members 0",
    f"train {SMALL} --store new --decoder nothing",
    f"train {SMALL} --store new --import nowhere",
    f"train {SMALL} --store new --scheduler nowhere.json",
    "train --size 8 --device cpu --import refusing.py --decoder refusing --store new",
    f"compare {SMALL} --store new --out out --remedy nothing",
    f"compare {SMALL} --store new --out out --remedy wider --members 0",
    "reproduce encoder --device cpu --store new --out out --members 0",
    "reproduce encoder --device cpu --store new --out out --set precision=tf32",
    "reproduce encoder --device cpu --store mine.py --out out",
    "diagnose torch.nn:Identity --grid x=0:3 --stages nothing --out out",
    "runs export new nothing",
    "runs export new --where seed==99",
    "runs export new --store empty",
    "runs export new.csv --where seed==99",
    "runs export new --store damaged",
    "runs export new --layout nothing",
    "runs export new.xyz",
]
REFUSING = """
from typing import Literal
import recombine as rc

@rc.DECODERS.register
class Refusing(rc.MLP):
    kind: Literal["refusing"] = "refusing"

    def build(self, interface):
        raise rc.InvalidValue("width", self.width, "another")
"""


@pytest.mark.parametrize("words", REFUSED)
def test_a_refused_command_creates_nothing(words, place, trained, capsys):
    (place / "refusing.py").write_text(REFUSING)
    rc.Store(place / "empty")
    shutil.copytree(trained, place / "damaged")
    for weights in (place / "damaged" / "runs").glob("*/weights.safetensors"):
        weights.write_bytes(b"")
    before = set(contents(place))
    code, out, err = captured(words, capsys)
    rc.DECODERS.pop("refusing", None)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1, err
    assert set(contents(place)) == before


def test_a_name_that_is_only_an_ending_is_a_table(place):
    assert run("runs", "export", ".csv") == 0
    assert (place / ".csv").is_file()
    key = next(iter(rc.Store())).key
    assert run("runs", "export", "model-v1.0", key, "--layout", "huggingface") == 0  # a point in a folder's name
