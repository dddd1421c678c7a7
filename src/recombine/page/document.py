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

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from recombine.reproduction.report import Parts, policy

MODULES = (
    "bytes", "kernel", "convolution", "operations", "program", "grid", "decoder", "address", "pictures", "survey",
    "views", "plane", "side", "switches", "main",
)  # fmt: skip
"""Modules of the script, each after those that it imports."""
TEMPLATES = Environment(
    loader=PackageLoader("recombine.page", "."), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
)
_IMPORT = re.compile(r"^import .*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async |abstract )?(function|class|const|let)\b)", re.MULTILINE)


@cache
def script(modules: tuple[str, ...] = MODULES) -> str:
    """The modules as one script."""
    folder = files("recombine.page") / "script"
    joined = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in modules)
    return _EXPORT.sub("", _IMPORT.sub("", joined))


def explorer(data: Mapping[str, Any], numbers: bytes) -> Parts:
    """The parts of a page on which decoders run; it has elements `title` and `lead` of its own before them."""
    return parts("page", _context(data, numbers), MODULES)


def parts(name: str, values: Mapping[str, Any], modules: tuple[str, ...], workers: tuple[str, ...] = ()) -> Parts:
    """A template's body and payload, with its style and a script of some modules."""
    own = TEMPLATES.get_template(f"{name}.html.j2")
    context = own.new_context(dict(values))
    body, payload = (Markup("".join(own.blocks[block](context))) for block in ("body", "payload"))
    return Parts(style(name), body, payload, script(modules), workers)


def document(data: Mapping[str, Any], numbers: bytes, panels: Sequence[Parts] = ()) -> str:
    """The page: HTML with an explorer of this data, and panels that follow it."""
    scripts = [script(), *(panel.script for panel in panels)]
    styles = [style("page"), *(panel.style for panel in panels)]
    return TEMPLATES.get_template("page.html.j2").render(
        policy=policy(scripts, styles, workers=[name for panel in panels for name in panel.workers]),
        title=data["title"],
        styles=[Markup(text) for text in styles],
        scripts=[Markup(text) for text in scripts],
        panels=panels,
        **_context(data, numbers),
    )


def _context(data: Mapping[str, Any], numbers: bytes) -> dict[str, Markup]:
    content = Markup(base64.b64encode(zlib.compress(numbers, 9)).decode())
    return {"data": as_json(data), "numbers": content, "kernel": kernel()}


def style(name: str) -> str:
    """A style sheet of this package."""
    return (files("recombine.page") / f"{name}.css").read_text(encoding="utf-8")


def as_json(data: Mapping[str, Any]) -> Markup:
    """Data as JSON that can stand in a script element."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def kernel() -> Markup:
    """The compiled products of matrices, in base64."""
    return Markup(base64.b64encode((files("recombine.page") / "matmul.wasm").read_bytes()).decode())
