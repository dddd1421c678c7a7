"""Compositional Generalization via Forced Rendering of Disentangled Latents (Liang, Qian, Ziyin, Fiete; ICML 2025).

One folder per question: `study.py` (settings, arms, measurement), `claims.py` (claims, criteria and how they are
judged), `figure.py` (drawing and captions), and `labels.py`, what these call things. A new question is a folder and a
line below.
"""

from __future__ import annotations

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
)
Preset = PAPER.preset
PRESETS = PAPER.presets
STUDIES = PAPER.studies
