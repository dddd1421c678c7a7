"""The HTML file itself: a template, its style, its script and its data, and a policy that lets nothing else in.

The script is a few modules, written one after another without their imports and exports. Texts of users are data, which
the script writes as text; none becomes HTML.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

MODULES = (
    "memory", "matmul", "convolution", "operations", "program", "grid", "codes", "decoder", "address", "pictures",
    "geometry", "survey", "charts", "curves", "picture", "views", "plane", "side", "background", "main",
)  # fmt: skip
"""Modules of the script, each after those that it imports."""
_IMPORT = re.compile(r"^import .*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async |abstract )?(function|class|const|let)\b)", re.MULTILINE)


@cache
def script() -> str:
    """The whole script."""
    folder = files("recombine.page") / "script"
    return "\n".join(bare((folder / f"{name}.js").read_text(encoding="utf-8")) for name in MODULES)


def bare(text: str) -> str:
    """A module without its imports and exports."""
    return _EXPORT.sub("", _IMPORT.sub("", text))


def document(data: Mapping[str, Any], numbers: bytes) -> str:
    """The page.

    Parameters
    ----------
    data
        What the script reads, as JSON.
    numbers
        The bytes that the data point into.

    Returns
    -------
    str
        HTML.
    """
    folder = files("recombine.page")
    style = (folder / "page.css").read_text(encoding="utf-8")
    policy = "; ".join([
        "default-src 'none'", f"script-src '{digest(script())}' 'wasm-unsafe-eval'", f"style-src '{digest(style)}'",
        "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
    ])  # fmt: skip
    environment = Environment(
        loader=PackageLoader("recombine.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.j2").render(
        policy=policy,
        title=data["title"],
        style=Markup(style),
        script=Markup(script()),
        data=Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")),
        numbers=Markup(base64.b64encode(numbers).decode()),
        kernel=Markup(base64.b64encode((folder / "matmul.wasm").read_bytes()).decode()),
    )


def digest(text: str) -> str:
    """A text as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
