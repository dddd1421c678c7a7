"""Interactive elements of self-contained pages, and a Content-Security-Policy that blocks everything else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Parts:
    """An interactive page element with its style, markup, data and script."""

    style: str
    body: Markup
    payload: Markup
    """Data for the script, which may be placed anywhere on the page."""
    script: str
    workers: tuple[str, ...] = ()
    """Names of the trusted-types policies that the script uses to start workers."""


def policy(scripts: Sequence[str], styles: Sequence[str], images: str = "", workers: Sequence[str] = ()) -> str:
    """Return a Content-Security-Policy that allows only these scripts, styles, workers and image sources."""

    def digests(texts: Sequence[str]) -> str:
        hashes = (hashlib.sha256(text.encode()).digest() for text in texts)
        return " ".join(f"'sha256-{base64.b64encode(own).decode()}'" for own in hashes)

    sources = [f"img-src {images}"] if images else []
    sources += ["worker-src blob:"] if workers else []
    return "; ".join([
        "default-src 'none'", f"script-src {digests(scripts)} 'wasm-unsafe-eval'", f"style-src {digests(styles)}",
        *sources,
        "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'",
        "trusted-types " + (" ".join(workers) or "'none'"),
    ])  # fmt: skip
