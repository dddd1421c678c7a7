"""Does a module compose, and at which stage do held-out combinations part from kept ones? The rules in one place.

In a diagnosis, an output is *right* if the nearest target of the grid is its own, or looks the same
(`metrics.nearest_points`), and errors are relative to that of the mean kept target, kept and held-out ones apart. The
same rule applies to the scores of a stored run: an output is right as its accuracy says (a bump within a pixel of its
place; the nearest of a user's images), and errors are relative to the blank output. A module

- has *not learnt* if its kept error is at least `NOT_LEARNT`, or fewer than `HALF` of the kept outputs are right;
- *composes* if at least `MOST` as many held-out as kept outputs are right, and no fewer than `LEAST`, and if their
  error is at most `SMALL` or at most `TIMES` the kept error;
- *does not compose* if fewer than `HALF` of the held-out outputs are right;
- composes *partly* otherwise.

Held-out points part from kept ones at the first stage whose `step_change` exceeds `PARTING`, which networks that
compose rarely reach at any stage. All limits were set on one half of the networks of `benchmarks/outcomes.py` and
checked on the other half; docs/metrics.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

NOT_LEARNT = 0.5
MOST, LEAST, HALF = 0.9, 0.8, 0.5
SMALL, TIMES = 0.1, 2.0
PARTING = 0.08

COMPOSES, PARTLY, FAILS, UNLEARNT = "composes", "partly composes", "does not compose", "not learnt"
RULE = (
    f"rule: composes if at least {MOST:.0%} as many held-out as kept outputs are right ({LEAST:.0%} at least) and "
    f"their error is at most {SMALL:g} or {TIMES:g} times the kept error; does not compose if fewer than {HALF:.0%} "
    f"are right; else partly; not learnt if the kept error is at least {NOT_LEARNT:g} or fewer than {HALF:.0%} of kept "
    "outputs are right"
)


def outcome(scores: Mapping[str, float], reference: Literal["mean", "blank"] = "mean") -> str:
    """Return the outcome for accuracies and for errors over the mean target or the blank output; "" without errors.

    Without accuracies (images that rotate have no place), outputs are right if their mean error is below `NOT_LEARNT`.

    >>> outcome({"id_over_mean": 0.005, "ood_over_mean": 0.21, "id_accuracy": 1.0, "ood_accuracy": 0.67})
    'partly composes'
    """
    names = (f"id_over_{reference}", f"ood_over_{reference}", "id_accuracy", "ood_accuracy")
    kept, held_out, kept_right, right = (float(scores.get(name, np.nan)) for name in names)
    if np.isnan(kept + held_out):
        return ""
    if np.isnan(kept_right + right):
        kept_right, right = float(kept < NOT_LEARNT), float(held_out < NOT_LEARNT)
    if not kept < NOT_LEARNT or kept_right < HALF:
        return UNLEARNT
    if right >= max(LEAST, MOST * kept_right) and held_out <= max(SMALL, TIMES * kept):
        return COMPOSES
    return FAILS if right < HALF else PARTLY


def parting_stage(stages: Any, changes: Any) -> tuple[str, float] | None:
    """Return the first stage at which held-out points part from kept ones, with its step change, or None.

    >>> parting_stage(["input", "0", "output"], [0.0, 0.4, 0.5])
    ('0', 0.4)
    """
    for stage, change in zip(stages, changes, strict=True):
        if change > PARTING:
            return str(stage), float(change)
    return None
