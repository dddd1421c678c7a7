"""Compositional Generalization via Forced Rendering of Disentangled Latents (Liang, Qian, Ziyin, Fiete; ICML 2025).

A question, as `depth`, has one to three files: `depth.py` (settings, arms, measurement), `depth_claims.py` (claims,
criteria and how they are judged) and `depth_figure.py` (drawing and captions), or what they would hold in the first.
Below them lie `presets.py` (settings that studies share), `samples.py` (which networks count) and `scores.py` (what
several studies measure). A new question is such a file and a line below.
"""

from __future__ import annotations

from recombine.papers.forced_rendering.markers_ranking import write_marker_auroc
from recombine.reproduction.paper import Paper

QUESTIONS = (
    "encodings",
    "superposition",
    "depth",
    "controls",
    "markers",
    "mlp",
    "penalties",
    "stripes",
    "threshold",
    "tuning",
    "regimes",
    "theory",
    "rotation",
    "encoder",
    "attention",
    "holdouts",
    "encoding_width",
    "factors",
)
"""In the order in which a report tells them."""

PAPER = Paper.assemble(
    __name__,
    QUESTIONS,
    title="Compositional Generalization via Forced Rendering of Disentangled Latents",
    source="ICML 2025",
    question="Does it compose?",
    write_markers=write_marker_auroc,
)
Preset = PAPER.preset
"""Under this name presets are pickled."""
