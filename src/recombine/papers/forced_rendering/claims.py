"""Premises and conditions that claims of several studies share, written before the runs they judge.

Scores: `id_over_blank`, `ood_over_blank`: error over that of a blank image, inside and outside the training region;
`id_accuracy`: share of bumps in place.
"""

from __future__ import annotations

from recombine.reproduction.claims import Condition

LEARNT = (Condition("id_over_blank", "below", 0.1), Condition("id_accuracy", "above", 0.95))
"""The network draws what it was trained on."""
FITTED = LEARNT[:1]
"""The same by the error alone."""
FAILS = (Condition("ood_over_blank", "above", 0.5),)
"""The network does not draw what was held out."""
