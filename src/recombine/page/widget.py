"""The explorer as a widget of Jupyter, VS Code, Colab and marimo, through anywidget, which is needed for this alone."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from recombine.errors import RecombineError

MISSING = "widget: anywidget is not installed; pip install anywidget, or save the page and open the file"


def available() -> bool:
    """Whether anywidget is installed."""
    try:
        return find_spec("anywidget") is not None
    except ValueError:  # a module that hides itself
        return False


def explorer_widget(html: str, height: int) -> Any:
    """The page as an `anywidget.AnyWidget`."""
    try:
        widget = _widget_class()
    except ImportError:
        raise RecombineError(MISSING) from None
    return widget(html=html, height=height)


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class ExplorerWidget(anywidget.AnyWidget):
        """A page in a frame; `address` is the present view, as `#at=13,13&stage=1`, and may be set."""

        _esm = (files("recombine.page") / "widget.js").read_text(encoding="utf-8")
        html = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)
        address = traitlets.Unicode("").tag(sync=True)

    return ExplorerWidget
