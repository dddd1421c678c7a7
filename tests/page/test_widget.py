"""The explorer as a widget: what Python gives to the notebook, and what happens without anywidget."""

import sys

import pytest
from torch import nn

import recombine as rc
from recombine.errors import RecombineError
from recombine.page import widget


@pytest.fixture(scope="module")
def page():
    return rc.explore(nn.Linear(2, 9), "x=0:2,y=0:2")


@pytest.fixture
def without_anywidget(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    widget._widget_class.cache_clear()
    yield
    widget._widget_class.cache_clear()


@pytest.fixture
def displayed(monkeypatch):
    """What IPython is asked to display."""
    display = pytest.importorskip("IPython.display")
    objects = []
    monkeypatch.setattr(display, "display", lambda shown, **settings: objects.append(shown))
    return objects


def test_a_widget_holds_the_page_and_the_view(page, displayed):
    anywidget = pytest.importorskip("anywidget")
    own = page.widget(height=500)
    assert isinstance(own, anywidget.AnyWidget)
    state = own.get_state()
    assert state["html"] == page.html
    assert (state["height"], state["address"]) == (500, "")
    assert "export default" in state["_esm"]
    own.set_state({"address": "#at=1,2"})  # as the notebook does
    assert own.address == "#at=1,2"
    page._ipython_display_()
    assert isinstance(displayed[0], anywidget.AnyWidget)
    assert displayed[0].html == page.html


@pytest.mark.usefixtures("without_anywidget")
def test_without_anywidget_one_line_says_so(page):
    with pytest.raises(RecombineError, match=r"anywidget is not installed; pip install anywidget") as error:
        page.widget()
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("without_anywidget")
def test_without_anywidget_a_frame_is_shown(page, displayed):
    page._ipython_display_()
    assert displayed[0]["text/html"].startswith("<iframe")


def test_mistakes_are_one_line(page):
    with pytest.raises(rc.InvalidValue, match="height"):
        page.widget(height="tall")
