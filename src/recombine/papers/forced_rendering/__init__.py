"""Compositional Generalization via Forced Rendering of Disentangled Latents (Liang, Qian, Ziyin, Fiete; ICML 2025).

Each question, such as `depth`, has up to three files: `depth.py` (settings, measurements and arms, i.e.
experimental conditions), `depth_claims.py` (claims, criteria and their samples) and `depth_figure.py` (figures and
captions). Short questions use a single file. All studies share `presets.py` (settings), `samples.py` (selection of
networks) and `scores.py` (measurements). To add a question, write such a file and add its name to `QUESTIONS`.
Throughout, a network *composes* if it generalises to unseen combinations of factor values.
"""

from __future__ import annotations

from recombine.papers.forced_rendering.markers_ranking import write_marker_auroc
from recombine.reproduction.paper import Paper

QUESTIONS = (
    "encodings", "superposition", "depth", "controls", "causal", "markers", "prospective", "mlp", "penalties",
    "stripes", "threshold", "tuning", "regimes", "theory", "rotation", "encoder", "attention", "ladder", "holdouts",
    "encoding_width", "factors",
)  # fmt: skip
"""Modules of the studies, in the order of the report."""

PAPER = Paper.assemble(
    __name__,
    QUESTIONS,
    unseen="1000 and up",
    title="Compositional Generalization via Forced Rendering of Disentangled Latents",
    source="ICML 2025",
    question="Does it compose?",
    write_markers=write_marker_auroc,
)
Preset = PAPER.preset
"""Presets are pickled under this name."""
