"""The HTML file: a template with its style, script and data, and a security policy that allows nothing else.

The script consists of the concatenated modules without their imports and exports. User-supplied strings are data, which
the script inserts as text and never as HTML.
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
    "bytes", "kernel", "convolution", "attention", "operations", "program", "grid", "decoder", "address", "pictures",
    "explained", "answer", "survey", "requests", "workers", "runner", "views", "plane", "side", "switches", "tour",
    "main",
)  # fmt: skip
"""Modules of the script, each listed after the modules that it imports."""
RUNNING = (
    "bytes", "kernel", "convolution", "attention", "operations", "program", "grid", "decoder", "survey", "requests",
    "worker",
)  # fmt: skip
"""Modules of the worker's script, which runs the decoders."""
WORKER_POLICY = "recombine-explorer"
"""Name of the trusted-types policy by which the page starts its workers."""
TEMPLATES = Environment(
    loader=PackageLoader("recombine.page", "."), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
)
_IMPORT = re.compile(r"^import .*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async |abstract )?(function|class|const|let)\b)", re.MULTILINE)


@cache
def script(modules: tuple[str, ...] = MODULES) -> str:
    """Return the modules joined into one script."""
    folder = files("recombine.page") / "script"
    joined = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in modules)
    return _EXPORT.sub("", _IMPORT.sub("", joined))


def explorer(data: Mapping[str, Any], numbers: bytes) -> Parts:
    """Return the explorer for embedding in a page that has elements with the ids `title` and `lead`."""
    return parts("page", _context(data, numbers), MODULES, (WORKER_POLICY,))


def parts(name: str, values: Mapping[str, Any], modules: tuple[str, ...], workers: tuple[str, ...] = ()) -> Parts:
    """Return a template's body and payload with its style sheet and a script made of the given modules."""
    template = TEMPLATES.get_template(f"{name}.html.j2")
    context = template.new_context(dict(values))
    body, payload = (Markup("".join(template.blocks[block](context))) for block in ("body", "payload"))
    return Parts(style(name), body, payload, script(modules), workers)


def document(data: Mapping[str, Any], numbers: bytes, panels: Sequence[Parts] = ()) -> str:
    """Return an HTML page with the explorer, followed by panels."""
    scripts = [script(), *(panel.script for panel in panels)]
    styles = [style("page"), *(panel.style for panel in panels)]
    return TEMPLATES.get_template("page.html.j2").render(
        policy=policy(scripts, styles, workers=[WORKER_POLICY, *(name for panel in panels for name in panel.workers)]),
        title=data["title"],
        styles=[Markup(text) for text in styles],
        scripts=[Markup(text) for text in scripts],
        panels=panels,
        **_context(data, numbers),
    )


def _context(data: Mapping[str, Any], numbers: bytes) -> dict[str, Any]:
    content = Markup(base64.b64encode(zlib.compress(numbers, 9)).decode())
    names = [model["name"] for model in data["models"]]
    return {
        "data": as_json(data), "numbers": content, "kernel": kernel(), "names": names, "runs": _runs(data),
        "worker": Markup(script(RUNNING)), "worker_policy": WORKER_POLICY,
    }  # fmt: skip


def _runs(data: Mapping[str, Any]) -> str:
    """Return whether the decoders run in the page or their outputs were computed beforehand."""
    live = sum(model["program"] is not None for model in data["models"])
    if live == len(data["models"]):
        return "the decoder runs in this page" if live == 1 else "the decoders run in this page"
    return f"{live} of {len(data['models'])} decoders run in this page" if live else "outputs were computed beforehand"


def style(name: str) -> str:
    """Return one of this package's style sheets."""
    return (files("recombine.page") / f"{name}.css").read_text(encoding="utf-8")


def as_json(data: Mapping[str, Any]) -> Markup:
    """Return JSON that is safe inside a script element."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def kernel() -> Markup:
    """Return the compiled matrix product, encoded in base64."""
    return Markup(base64.b64encode((files("recombine.page") / "matmul.wasm").read_bytes()).decode())
