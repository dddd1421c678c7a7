"""The stage profile: registered metrics of every stage of a network; `diagnose` and studies share it.

Stages are read one after the other, evaluated and forgotten, so that memory holds few of them at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics.registry import STAGE_METRICS, Stage, StageMetric
from recombine.metrics.stages import MEMORY, Reader, features


@dataclass
class StageProfile:
    """Columns of registered metrics, one tensor per stage."""

    stages: list[str] = field(default_factory=list)
    columns: dict[str, list[Tensor]] = field(default_factory=dict)
    """By the column's name, `(*member, …)` with the column's own axes, in the order of the stages."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Metrics that were not evaluated, each with what it needs and the network or its grid does not have."""


def read_stages(
    reader: Reader,
    points: Float[Tensor, "point factor"],
    grid: FactorGrid,
    held_out: Bool[Tensor, " point"],
    *,
    exact: Mapping[str, Tensor] | None = None,
    targets: Tensor | None = None,
    neighbours: Mapping[str, Tensor] | None = None,
    members: int = 0,
    memory: int = MEMORY,
) -> Iterator[Stage]:
    """Every stage of a network over a grid, in the order in which the network runs them.

    The mask of held-out points is on the host. Metric tensors are by the stage's name: `exact` ones, without which
    there are finite differences, and those by differences to `neighbours`, where the points are part of a larger grid.
    """
    for name, activations in features(reader, points, members=members, memory=memory):
        metric = None if exact is None else exact[name]
        differences = None if neighbours is None else neighbours[name]
        yield Stage(name, activations, points, grid, held_out, metric, targets, differences)


def stage_profile(
    stages: Iterable[Stage], metrics: Iterable[str] | None = None, *, thorough: bool | Collection[str] = False
) -> StageProfile:
    """Registered metrics of every stage: those named, or all usual ones.

    Those whose needs are not met are left out; those that take long too, unless `thorough` says otherwise.
    """
    chosen = [STAGE_METRICS[name] for name in (usual_metrics(thorough) if metrics is None else metrics)]
    profile = StageProfile()
    for stage in stages:
        profile.stages.append(stage.name)
        for metric in chosen:
            if missing := [need for need in metric.needs if not stage.has(need)]:
                profile.left_out[metric.name] = str(missing[0])
                continue
            for name, value in _evaluated(metric, stage).items():
                profile.columns.setdefault(name, []).append(value)
    return profile


def usual_metrics(thorough: bool | Collection[str] = False) -> list[str]:
    """The registered metrics that are evaluated by default: of those that take long all, none, or those named."""
    long = [STAGE_METRICS[name].name for name in ([] if isinstance(thorough, bool) else thorough)]
    return [name for name, metric in STAGE_METRICS.items() if not metric.thorough or thorough is True or name in long]


def _evaluated(metric: StageMetric, stage: Stage) -> Mapping[str, Tensor]:
    """The columns of a metric, which must be those that it declares."""
    values = metric.evaluate(stage)
    declared = [column.name for column in metric.columns]
    if sorted(values) != sorted(declared):
        raise InvalidValue(f"metric {metric.name}", sorted(values), f"the columns that it declares: {declared}")
    return values
