"""The bar of a notebook: one display that is updated, without widgets; and where `train` shows a bar at all."""

import sys
import types

import pytest

import recombine as rc
from recombine.sweep import bar as bars
from recombine.sweep.bar import TrainingBar, bar_for
from recombine.sweep.notebook import NotebookBar, in_notebook
from tests.small import small_spec
from tests.sweep.test_bar import Clock, progress


class Handle:
    """What a display returns to be updated."""

    def __init__(self, states):
        self.states = states

    def update(self, content, *, raw):
        assert raw
        self.states.append(content)


@pytest.fixture
def notebook(monkeypatch):
    """An IPython with a kernel, whose display is a list of states; no widgets can be imported."""
    states, displays = [], []

    def display(content, *, raw, display_id):
        assert raw
        assert display_id
        displays.append(content)
        states.append(content)
        return Handle(states)

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display, module.display = module, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    return types.SimpleNamespace(states=states, displays=displays, module=ipython)


def test_a_notebook_is_an_ipython_with_a_kernel(notebook, monkeypatch):
    assert in_notebook()
    notebook.module.get_ipython = lambda: types.SimpleNamespace()  # IPython in a terminal
    assert not in_notebook()
    notebook.module.get_ipython = lambda: None
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_one_display_is_updated_and_its_last_state_stays(notebook, capsys):
    clock = Clock()
    with TrainingBar(clock) as bar:
        for step in range(1, 1001):
            clock.now = step * 0.01
            bar(progress(step, 1000, finished=step // 125, error=0.25, members=int(step < 1000)))
        bar.say("a worker <b>left</b>")
    assert len(notebook.displays) == 1
    assert 40 <= len(notebook.states) <= 52  # of a thousand calls in ten seconds
    middle = notebook.states[25]
    assert middle["text/plain"].startswith("4/8 runs · 5")
    assert middle["text/plain"].endswith(" left")
    assert "1 member · 100 steps/s · MSE 2.5e-01 · about 5 s left" in middle["text/html"]
    last = notebook.states[-1]
    assert '<progress max="1000" value="1000"' in last["text/html"]
    assert last["text/plain"] == "8/8 runs · 100 %"
    assert capsys.readouterr() == ("a worker <b>left</b>\n", "")


def test_nothing_to_train_displays_nothing(notebook):
    with TrainingBar(Clock()) as bar:
        bar(progress(0, 0))
    assert not notebook.states


def test_text_is_not_markup(notebook):
    bar = NotebookBar(Clock())
    bar.show("1/2", 1, 2, "<script>")
    assert "<script>" not in notebook.states[0]["text/html"]


@pytest.mark.parametrize(
    ("setting", "watched", "terminal", "shown"),
    [("auto", False, True, True), ("auto", False, False, False), ("auto", True, True, False),
     (True, True, False, True), (True, False, False, True), (False, False, True, False)],
)  # fmt: skip
def test_where_a_bar_is_shown(setting, watched, terminal, shown, monkeypatch):
    monkeypatch.setattr(bars, "is_terminal", lambda stream: terminal)
    assert (bar_for(setting, print if watched else None) is not None) == shown


def test_train_shows_it_in_a_notebook(notebook, tmp_path, capsys):
    seen = []
    runs = rc.train(small_spec("mlp").seeds(range(2)), tmp_path / "runs")
    assert len(runs) == 2
    assert len(notebook.displays) == 1
    assert notebook.states[-1]["text/plain"] == "2/2 runs · 100 %"
    rc.train(small_spec("mlp").seeds(range(3)), tmp_path / "runs", watch=seen.append)
    assert len(notebook.displays) == 1
    assert seen[-1].runs == 3
    rc.train(small_spec("mlp").seeds(range(4)), tmp_path / "runs", watch=seen.append, progress=True)
    assert len(notebook.displays) == 2
    assert seen[-1].runs == 4
    rc.train(small_spec("mlp").seeds(range(5)), tmp_path / "runs", progress=False)
    assert len(notebook.displays) == 2
    assert capsys.readouterr() == ("", "")


def test_train_is_silent_in_a_pipe(tmp_path, capsys):
    rc.train(small_spec("mlp"), tmp_path / "runs")
    assert capsys.readouterr() == ("", "")
