"""The HTML file itself: a template, its style, its script and its data, and a policy that lets nothing else in.

The script is a few modules, written one after another without their imports and exports. Texts of users are data, which
the script writes as text; none becomes HTML.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from recombine.reproduction.report import Parts, policy

MODULES = (
    "bytes", "kernel", "convolution", "operations", "program", "grid", "decoder", "address", "pictures", "survey",
    "views", "plane", "side", "switches", "main",
)  # fmt: skip
"""Modules of the script, each after those that it imports."""
_IMPORT = re.compile(r"^import .*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async |abstract )?(function|class|const|let)\b)", re.MULTILINE)


@cache
def script(modules: tuple[str, ...] = MODULES) -> str:
    """The modules as one script."""
    folder = files("recombine.page") / "script"
    return "\n".join(bare((folder / f"{name}.js").read_text(encoding="utf-8")) for name in modules)


def bare(text: str) -> str:
    """A module without its imports and exports."""
    return _EXPORT.sub("", _IMPORT.sub("", text))


def explorer(data: Mapping[str, Any], numbers: bytes) -> Parts:
    """The parts of a page on which decoders run; it has elements `title` and `lead` of its own before them.

    Parameters
    ----------
    data
        What the script reads, as JSON.
    numbers
        The bytes that the data point into.

    Returns
    -------
    Parts
        For a page of another kind than `document`.
    """
    own = template("page.html.j2")
    context = own.new_context(_context(data, numbers))
    body, payload = (Markup("".join(own.blocks[name](context))) for name in ("explorer", "payload"))
    return Parts(_style(), body, payload, script())


def document(data: Mapping[str, Any], numbers: bytes, panels: Sequence[Parts] = ()) -> str:
    """The page: HTML with an explorer of this data, and panels that follow it."""
    scripts = [script(), *(panel.script for panel in panels)]
    styles = [_style(), *(panel.style for panel in panels)]
    return template("page.html.j2").render(
        policy=policy(scripts, styles, workers=[name for panel in panels for name in panel.workers]),
        title=data["title"],
        styles=[Markup(style) for style in styles],
        scripts=[Markup(text) for text in scripts],
        panels=panels,
        **_context(data, numbers),
    )


def _context(data: Mapping[str, Any], numbers: bytes) -> dict[str, Markup]:
    content = Markup(base64.b64encode(zlib.compress(numbers, 9)).decode())
    return {"data": as_json(data), "numbers": content, "kernel": kernel()}


def _style() -> str:
    return (files("recombine.page") / "page.css").read_text(encoding="utf-8")


def template(name: str) -> Template:
    """A template of this package."""
    environment = Environment(
        loader=PackageLoader("recombine.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def as_json(data: Mapping[str, Any]) -> Markup:
    """Data as JSON that can stand in a script element."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def kernel() -> Markup:
    """The compiled products of matrices, in base64."""
    return Markup(base64.b64encode((files("recombine.page") / "matmul.wasm").read_bytes()).decode())
