"""`explore` and its command: what is refused, what falls back, and what a page holds."""

import base64
import json
import re
import sys
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import recombine as rc
from recombine.errors import InvalidValue, RecombineError
from recombine.page import model as limits
from recombine.page.explore import _widget_class, labels_of
from recombine.page.subject import page_decoders
from recombine.reproduction.explorer import KeptDecoder
from tests.command import captured
from tests.page.decoders import trained

SMALL = "x=0:3,y=0:2"


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear = nn.Linear(2, 16)

    def forward(self, x):
        return self.function(self.linear(x))


def data_of(html):
    return json.loads(re.search('id="data">(.*?)</script>', html)[1])


def test_what_cannot_run_in_a_browser_is_computed_beforehand():
    page = rc.explore(Calls(lambda x: torch.cumsum(x, 1)), SMALL, holdout="mask:points=1,1")
    (model,) = data_of(page.html)["models"]
    assert model["program"] is None
    assert model["table"]["length"] == 2 * 12 * 16  # float16
    assert model["smooth"] == [False, False]
    assert re.search("cannot run in the page: .*cumsum in Calls.*Outputs at grid points are precomputed", page.notes[0])


def test_random_outputs_are_noticed_where_some_are_not():
    page = rc.explore(Dropped(), SMALL)
    assert "random numbers (native_dropout in Dropped)" in page.notes[0]
    assert page.notes[1:] == ("Dropped: Outputs are random; the same seed was used at every point.",)


class Dropped(nn.Module):
    """Drops half of its inputs, of which none is left at 0."""

    def forward(self, x):
        return nn.functional.dropout(x.repeat(1, 8), 0.5, training=True)


def test_a_large_module_falls_back(monkeypatch):
    monkeypatch.setattr(limits, "LARGEST_PROGRAM", 40)
    page = rc.explore(nn.Linear(2, 16), SMALL)
    assert "at most 40 parameters, got 48" in page.notes[0]


def test_a_module_without_parameters_runs():
    page = rc.explore(nn.Sequential(nn.Softplus(), nn.Flatten()), SMALL)
    (model,) = data_of(page.html)["models"]
    assert page.notes == ()
    assert [operation["name"] for operation in model["program"]["operations"]][-1] in ("where", "map", "view")


def test_numbers_that_are_not_finite_at_one_point_are_refused():
    with pytest.raises(rc.InvalidValue, match="finite at every grid point") as error:
        rc.explore(nn.Linear(2, 16), SMALL, encode=hole)
    assert "\n" not in str(error.value)


def hole(values):
    """Values, none at (1, 1)."""
    return torch.where((values == 1).all(1, keepdim=True), torch.nan, values)


def test_a_fallback_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(limits, "LARGEST_PROGRAM", 40)
    monkeypatch.setattr(limits, "LARGEST_TABLE", 100)
    with pytest.raises(rc.InvalidValue, match=r"got 48\).*at most 100 output values .*here 192"):
        rc.explore(nn.Linear(2, 16), SMALL)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"module": Calls(lambda x: x / 0 * 0)}, "outputs are finite"),
        ({"module": Calls(lambda x: torch.complex(x, x))}, "real numbers"),
        ({"module": Calls(lambda x: x.sum())}, "a row of real numbers for every input row"),
        ({"module": nn.Linear(5, 2)}, "runs at every grid point"),
        ({"module": "linear"}, "a torch.nn.Module"),
        ({"module": []}, "at least one module"),
        ({"grid": None}, "FactorGrid"),
        ({"image_shape": (3, 5)}, "of 16 numbers"),
        ({"targets": torch.zeros(12, 5)}, "16 numbers"),
        ({"holdout": torch.ones(12, dtype=torch.bool)}, "at least one combination"),
    ],
)
def test_mistakes_are_one_line(arguments, words):
    with pytest.raises(RecombineError, match=words) as error:
        rc.explore(**{"module": nn.Linear(2, 16), "grid": SMALL, **arguments})
    assert "\n" not in str(error.value)


def test_what_a_page_holds():
    task, module = trained("mlp")
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    page = rc.explore(module.train(), task.grid, encode=task.encoding, holdout=task.held_out, targets=task.render)
    (model,) = data_of(page.html)["models"]
    assert page.notes == ()
    assert model["image"] == [1, 10, 10]
    assert model["sizes"] == list(task.code_sizes)
    assert [stage["name"] for stage in model["program"]["stages"]] == ["layer1", "layer2", "output"]
    kept = task.codes(task.grid.points)[~task.held_out].mean(dim=0)
    assert torch.allclose(torch.tensor(model["mean"]).double(), kept, atol=1e-6)
    assert module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.eval().state_dict().items())
    assert "http" not in re.sub("http-equiv", "", page.html.partition('id="numbers"')[0])
    assert page._repr_html_().startswith("<iframe")


@pytest.mark.parametrize(
    ("grid", "holdout", "start"),
    [
        ("x=0:9", "center:3:6", [4]),
        ("x=0:5,y=0:5", None, [2, 2]),
        ("x=0:5,y=0:5", "corner:2", None),
        ("x=0:5,y=0:5,z=0:5", "center:1:2", [1, 1, 1]),
        ("x=0:5,y=0:5,z=0:5", "corner:2", None),
        ("x=0:5,y=0:4,z=0:3", "diagonal:0:factors=x,z", None),
        ("x=0:5,y=0:5,z=0:2,w=0:2", "mask:points=5,0,2,0", [5, 0, 2, 0]),
        ("x=0:4,y=0:4,z=0:4", "cross:0", None),
    ],
)
def test_a_page_opens_at_a_held_out_combination(grid, holdout, start):
    factors = rc.FactorGrid.parse(grid)
    page = rc.explore(nn.Linear(len(factors.factors), 16), factors, holdout=holdout)
    found = data_of(page.html)["start"]
    assert start in (None, found)
    if holdout:
        assert rc.HOLDOUTS.parse(holdout).mask(factors)[tuple(found)]


def test_a_function_of_the_users_is_part_of_the_program():
    page = rc.explore(nn.Linear(3, 4), "a=0:5", encode=lambda v: torch.cat([v, v.sin(), v.cos()], dim=1))
    (model,) = data_of(page.html)["models"]
    assert model["codes"] is None
    assert model["program"]["shapes"][0] == [1, 1]


@pytest.fixture
def shapes(tmp_path):
    """A folder of images: three shapes at three places, of which one combination is missing."""
    folder, lines = tmp_path / "shapes", ["file,shape,x"]
    folder.mkdir()
    for number, shape in enumerate(("<b>heart</b>", "oval", "square")):
        for x in range(3):
            if (number, x) != (2, 1):
                Image.fromarray(np.full((4, 4), 40 * number + 10 * x, dtype=np.uint8)).save(
                    folder / f"{shape[:2]}{x}.png"
                )
                lines.append(f"{shape[:2]}{x}.png,{shape},{x}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


def test_images_of_ones_own_are_truth_and_memories(shapes):
    task = rc.ArrayTask(data=shapes, holdout="mask:points=0,0", allow_unseen=True)
    page = rc.explore(nn.Linear(sum(task.code_sizes), 16), data=task)
    data = data_of(page.html)
    (model,) = data["models"]
    numbers = zlib.decompress(base64.b64decode(re.search('id="numbers">(.*?)</script>', page.html)[1]))
    part = lambda table: numbers[table["start"] : table["start"] + table["length"]]  # noqa: E731
    assert [factor["labels"] for factor in data["factors"]] == [["<b>heart</b>", "oval", "square"], None]
    assert "<b>" not in page.html
    assert np.unpackbits(np.frombuffer(part(model["held"]), np.uint8), bitorder="little")[:9].tolist() == [1] + 8 * [0]
    present = np.unpackbits(np.frombuffer(part(model["present"]), np.uint8), bitorder="little")[:9]
    assert present.tolist() == [1, 1, 1, 1, 1, 1, 1, 0, 1]
    truth = np.frombuffer(part(model["truth"]), "<f2").reshape(9, 16)
    right = task.render(task.grid.points[task.present]).flatten(1).numpy()
    assert np.abs(truth[present == 1] - right).max() < 1e-3
    assert model["image"] == [1, 4, 4]
    kept = task.present & ~task.held_out
    assert torch.allclose(torch.tensor(model["mean"]), task.codes(task.grid.points[kept]).float().mean(0), atol=1e-6)


def test_a_grid_of_names_labels_its_category():
    page = rc.explore(nn.Linear(2, 16), {"shape": ["heart", "oval"], "x": range(3)}, holdout="shape==oval,x>=1")
    assert [factor["labels"] for factor in data_of(page.html)["factors"]] == [["heart", "oval"], None]


def test_a_file_is_enough(shapes):
    page = rc.explore(nn.Linear(2, 16), data=shapes, holdout="mask:points=1,1")
    assert data_of(page.html)["models"][0]["sizes"] == [1, 1]
    for wrong, words in (
        ({"grid": SMALL}, "grid must be omitted"),
        ({"data": "none.npz"}, "an existing file or folder"),
    ):
        with pytest.raises(rc.InvalidValue, match=words):
            rc.explore(nn.Linear(2, 16), **{"data": shapes, **wrong})
    with pytest.raises(rc.InvalidValue, match="9 numbers for each"):
        rc.explore(nn.Linear(2, 9), data=shapes)


def test_the_command_takes_data(shapes, capsys, monkeypatch):
    monkeypatch.chdir(shapes.parent)
    (shapes.parent / "mine.py").write_text("from torch import nn\ndef decoder():\n    return nn.Linear(6, 16)\n")
    words = "explore mine.py:decoder --data shapes --encoding onehot --holdout mask:points=1,1 --out page.html"
    code, _, err = captured(words, capsys)
    assert (code, err) == (0, "")
    (model,) = data_of((shapes.parent / "page.html").read_text())["models"]
    assert model["sizes"] == [3, 3]
    code, _, err = captured(f"{words} --grid x=0:2", capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "--data" in err


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from torch import nn\ndef decoder():\n    return nn.Linear(2, 9)\n")
    code, out, err = captured("explore mine.py:decoder --grid x=0:2,y=0:2 --image 3,3 --out page.html", capsys)
    assert (code, err) == (0, "")
    assert "written to page.html" in out
    assert data_of((tmp_path / "page.html").read_text())["models"][0]["image"] == [1, 3, 3]


@pytest.mark.parametrize(
    "words",
    ["--out page.html", "torch.nn:ReLU --out page.html", "torch.nn:ReLU --grid x=0:2 --image a --out page.html"],
)
def test_mistakes_of_the_command(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = captured(f"explore {words}", capsys)
    assert (code, err.count("\n")) == (2, 1)


TASK = rc.BumpTask(size=8, encoding="bump", holdout="center:3:4")
BASE = rc.RunSpec(task=TASK, decoder=rc.MLP(width=8, depth=1))


def kept(spec):
    return KeptDecoder("one", spec.digest, spec, {}, {}, {})


def test_runs_are_labelled_by_what_their_specs_differ_in():
    deep = BASE.replace(decoder=rc.MLP(width=8, depth=2))
    striped = BASE.replace(task=TASK.replace(isolated=True, training="pick:5"))
    names, values = labels_of([kept(spec) for spec in (BASE, deep, striped)], None)
    assert names == ["depth", "data"]
    assert [own[0] for own in values] == ["1", "2", "1"]
    assert values[2][1] == "pick:samples=5 and isolated factors"
    assert labels_of([kept(BASE)] * 3, None) == (["number"], [["1"], ["2"], ["3"]])


def test_two_decoders_and_modules_need_no_labels():
    assert labels_of([kept(BASE)] * 2, None) == ([], [[], []])
    assert labels_of([nn.Linear(2, 4)] * 3, None) == ([], [[], [], []])


def test_given_labels_are_in_the_page():
    modules = [nn.Linear(2, 16), nn.Linear(2, 16)]
    data = data_of(rc.explore(modules, SMALL, labels=[{"a": "one", "b": "same"}, {"a": "two", "b": "same"}]).html)
    assert data["labels"] == ["a"]
    assert [model["labels"] for model in data["models"]] == [["one"], ["two"]]
    with pytest.raises(rc.InvalidValue, match="labels"):
        labels_of(modules, [{"a": "one"}])


def displayed(page):
    """What a notebook is given to display, by type."""
    formatting = pytest.importorskip("IPython.core.formatters")
    return formatting.DisplayFormatter().format(page)[0]


def test_a_widget_holds_the_page_and_the_view():
    pytest.importorskip("anywidget")
    page = rc.ExplorerPage("<p>page</p>", ())
    own = page.widget(height=500)
    state = own.get_state()
    assert (state["html"], state["height"], state["address"]) == (page.html, 500, "")
    assert "export default" in state["_esm"]
    own.set_state({"address": "#at=1,2"})  # as the notebook does
    assert own.address == "#at=1,2"
    shown = displayed(page)
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/html"].startswith("<iframe")  # where no kernel runs, as in a saved notebook


def test_without_anywidget_a_frame_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    _widget_class.cache_clear()
    page = rc.ExplorerPage("<p>page</p>", ())
    with pytest.raises(RecombineError, match="anywidget is not installed"):
        page.widget()
    shown = displayed(page)
    assert shown["text/html"].startswith("<iframe")
    assert not any("widget" in kind for kind in shown)
    _widget_class.cache_clear()


class Looked(nn.Module):
    """Looks each factor up in a table of three entries."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 16)

    def forward(self, x):
        return self.table(x.long()).sum(1)


def test_an_index_out_of_range_is_named_with_its_line():
    with pytest.raises(InvalidValue, match=r"index is out of range in test_explore.py, line \d+: return self.table"):
        rc.explore(Looked(), "x=0:3,y=0:3")


def test_the_background_is_that_of_the_modules_own_outputs():
    def background(module, **settings):
        return page_decoders(module, grid="x=0:3,y=0:3", **settings)[0].background

    class Dark(nn.Module):
        def forward(self, x):
            return torch.cat([x, torch.full((len(x), 7), 0.75)], 1)

    assert background(Dark()) == 0.75
    assert background(Dark(), background=0.0) == 0.0
    assert background(Dark(), targets=torch.zeros(16, 9)) == 0.0


def test_a_page_says_that_it_runs_the_decoder_only_if_it_does():
    class Branching(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y if y.sum() > 0 else -y

    live, table = nn.Linear(2, 16), Branching(2, 16)
    sentences = [
        re.search("Drag the point: ([^.]*)", rc.explore(modules, "x=0:3,y=0:3").html).group(1)
        for modules in (live, table, [live, table])
    ]
    assert sentences == [
        "the decoder runs in this page", "outputs were computed beforehand", "1 of 2 decoders run in this page",
    ]  # fmt: skip
