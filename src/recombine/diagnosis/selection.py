"""Which numbers a diagnosis has: all that are usual, or some by name, so that nothing else is computed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from recombine.checks import items
from recombine.diagnosis.result import OUTPUT_SCORES
from recombine.errors import InvalidValue, listed
from recombine.metrics.profile import usual_metrics
from recombine.metrics.registry import STAGE_METRICS, Need

KERNELS = {"kernel_agreement", "kernel_p"}
SUPERPOSITION = {"superposition"}
SCORES = ("error", *OUTPUT_SCORES)
"""Variables of a diagnosis that are of the outputs alone."""


@dataclass(frozen=True)
class Selection:
    """What is measured."""

    stage_metrics: list[str]
    """Registered metrics by name."""
    metric_tensor: bool = True
    """Whether any of them needs the metric tensor."""
    kernels: bool = True
    superposition: bool = True


def selected(names: Sequence[str] | None, thorough: bool | Collection[str]) -> Selection:
    """What must be measured for variables of these names, or for all that are usual."""
    if names is None:
        return Selection(usual_metrics(thorough))
    wanted = set(items("metrics", names, str, example="names of variables, as ['ood_error', 'factorization_mean']"))
    known = {column.name: metric.name for metric in STAGE_METRICS.values() for column in metric.columns}
    if unknown := sorted(wanted - {*known, *SCORES}):
        raise InvalidValue("metrics", unknown[0], listed([*SCORES, *known]))
    chosen = {known[name] for name in wanted if name in known}
    ordered = [name for name in STAGE_METRICS if name in chosen]
    tensors = any(Need.METRIC in STAGE_METRICS[name].needs for name in ordered)
    return Selection(ordered, tensors, bool(wanted & KERNELS), bool(wanted & SUPERPOSITION))
