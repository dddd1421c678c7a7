"""Verdicts as text, the report's page, and the parts that a page is put together from. No torch here.

A page needs no other file, and has a policy that lets nothing else in.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Parts:
    """Something of a page with a script of its own: put where they belong, its parts need nothing else."""

    style: str
    body: Markup
    payload: Markup
    """What the script reads; anywhere in the page."""
    script: str
    workers: tuple[str, ...] = ()
    """Trusted-types policies by which the script starts workers, from text of the page."""


def policy(scripts: Sequence[str], styles: Sequence[str], images: str = "", workers: Sequence[str] = ()) -> str:
    """A Content-Security-Policy: these scripts, styles and workers, and images from these sources; nothing else."""
    script_digests, style_digests = (" ".join(f"'{digest(text)}'" for text in texts) for texts in (scripts, styles))
    sources = [f"img-src {images}"] if images else []
    sources += ["worker-src blob:"] if workers else []
    return "; ".join([
        "default-src 'none'", f"script-src {script_digests} 'wasm-unsafe-eval'", f"style-src {style_digests}", *sources,
        "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'",
        "trusted-types " + (" ".join(workers) or "'none'"),
    ])  # fmt: skip


def digest(text: str) -> str:
    """A text as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
