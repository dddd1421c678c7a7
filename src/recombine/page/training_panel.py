"""The panel in which a small decoder is trained live, as parts that any page of ours can hold."""

from __future__ import annotations

from importlib.resources import files

from markupsafe import Markup

from recombine.checks import one_of
from recombine.page.document import as_json, kernel, script, template
from recombine.page.training import LIVE, training_settings
from recombine.reproduction.report.parts import Parts
from recombine.specs import RunSpec

PANEL_MODULES = ("memory", "pictures", "training/examples", "training/drawing", "training/runs", "training/panel")
"""Modules of the panel's script, each after those that it imports."""
WORKER_MODULES = (
    "memory", "matmul", "training/random", "training/examples", "training/sheets", "training/taps", "training/relu",
    "training/from_point", "training/block", "training/to_image", "training/network", "training/adamw",
    "training/trainer", "training/worker",
)  # fmt: skip
"""Modules of the script that trains."""
WORKER_POLICY = "recombine-training"
"""Name of the trusted-types policy by which the panel starts its worker."""
FILLED, FAILED = 0.9, 0.6
"""Shares of held-out bumps in place from which, and up to which, the panel says that the box filled, or failed."""


def training_panel(spec: RunSpec = LIVE, heading: str = "h2") -> Parts:
    """The panel: its style, its body, what its script reads, and its script.

    Parameters
    ----------
    spec
        What is trained; a switch in the panel adds stripes, and seeds are the page's own.
    heading
        Element of its heading: `h2`, `h3` or `h4`.

    Returns
    -------
    Parts
        A page puts them where they belong and names `workers` in its policy.

    Examples
    --------
    >>> training_panel(heading="h3").workers
    ('recombine-training',)
    """
    heading = one_of("heading", heading, ("h2", "h3", "h4"))
    settings = training_settings(spec)
    data = {"settings": settings, "kernel": str(kernel()), "filled": FILLED, "failed": FAILED, "policy": WORKER_POLICY}
    pages = template("training.html.j2")
    values = {
        "heading": Markup(heading), "settings": settings, "width": spec.decoder.model_dump()["width"],
        "held": settings["held"].count("1"), "kept": settings["held"].count("0"),
        "data": as_json(data), "worker": Markup(script(WORKER_MODULES)),
    }  # fmt: skip
    context = pages.new_context(values)
    body, payload = (Markup("".join(pages.blocks[name](context))) for name in ("body", "payload"))
    style = (files("recombine.page") / "training.css").read_text(encoding="utf-8")
    return Parts(style, body, payload, script(PANEL_MODULES), (WORKER_POLICY,))
