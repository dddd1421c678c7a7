"""Stage metrics, each registered once: what it needs, which columns it gives, and its version.

A *stage metric* is a function of a `Stage`, what is known about one stage of a network over a factor grid, that returns
a tensor for each of its columns. Registering it is all there is to do: `diagnose` (Dataset, summary, figure), studies'
stage profile and the table in docs/metrics.md have it. Both measure stages by `stage_profile`: these are read one after
the other, evaluated and forgotten, so that memory holds few of them at a time.

>>> @stage_metric("loudness", Column("loudness", "mean square of the activations", heading="loudness"))
... def evaluate_loudness(stage: Stage) -> dict[str, Tensor]:
...     return {"loudness": stage.features.square().mean(dim=(-2, -1))}
>>> metric_versions(["loudness"])
{'loudness': 1}
>>> STAGE_METRICS.unregister("loudness")

Conventions: member axes come first, `(*member, …)`. A column's own axes are `point` (in the grid's order, unfolded to
the factors in a Dataset), `factor`, `other_factor`, and any name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue, listed
from recombine.factors import FactorGrid
from recombine.metrics.metric_tensors import finite_difference_metric
from recombine.metrics.stages import MEMORY, Reader, features, precision
from recombine.theory.projections import both_grams, point_coordinates
from recombine.theory.reversibility import FOLDS, Recovery, recovery


class Need(StrEnum):
    """What a stage metric needs beside the activations; where it is missing, its columns are left out."""

    METRIC = "metric tensor"
    """Exact where encoding and network have a derivative, by finite differences elsewhere."""
    DIFFERENCES = "finite differences"
    HOLDOUT = "hold-out"
    TARGETS = "targets"
    SEVERAL_FACTORS = "two factors or more"
    TWO_FACTORS = "two factors"
    THREE_FACTORS = "three factors or more"
    FOUR_POINTS = "four points or more"
    WHOLE_GRID = "the whole grid"
    """Neighbours on the grid among the points; a sub-grid of a grid too large to visit has none."""


@dataclass(frozen=True)
class Stage:
    """One stage of a network over a factor grid."""

    name: str
    features: Float[Tensor, "*member point feature"]
    points: Float[Tensor, "point factor"]
    grid: FactorGrid
    held_out: Bool[Tensor, " point"]
    """On the host: choosing by a mask that lies on a GPU waits for it."""
    exact: Float[Tensor, "*member point factor factor"] | None = None
    """The exact metric tensor; none where there is no derivative."""
    targets: Tensor | None = None
    """Right outputs of the network, `(point, …)`."""
    neighbours: Float[Tensor, "*member point factor factor"] | None = None
    """The metric tensor by differences to neighbours that are not among the points; none on a whole grid."""

    @cached_property
    def grams(self) -> tuple[Tensor, Tensor]:
        """Products of features less their mean over points, and as they are, `(*member, point, point)`."""
        return both_grams(self.features)

    @property
    def gram(self) -> Float[Tensor, "*member point point"]:
        """Products of features less their mean over points, in double precision."""
        return self.grams[0]

    @cached_property
    def coordinates(self) -> Float[Tensor, "*member point direction"]:
        """The same points in as few directions as they span: what is measured of many features needs no more."""
        return point_coordinates(self.gram)

    @cached_property
    def recovery(self) -> Recovery:
        """Errors of decoders from the stage back to the factors; grids of fewer points have fewer folds."""
        return recovery(self.gram, self.points, folds=min(FOLDS, len(self.points) // 2))

    @cached_property
    def differences(self) -> Float[Tensor, "*member point factor factor"]:
        """The metric tensor by finite differences, in double precision where single precision overflows."""
        if self.neighbours is not None:
            return self.neighbours
        spacing = tuple(factor.spacing for factor in self.grid.factors)
        metric = finite_difference_metric(self.features, self.grid.shape, spacing)
        if bool(metric.isfinite().all()):
            return metric
        return finite_difference_metric(self.features.to(precision(self.features.device)), self.grid.shape, spacing)

    @property
    def metric(self) -> Float[Tensor, "*member point factor factor"]:
        """The metric tensor: exact where there is one, else by finite differences."""
        return self.differences if self.exact is None else self.exact

    def has(self, need: Need) -> bool:
        """Whether the stage has what a metric needs."""
        return {
            Need.METRIC: True,
            Need.DIFFERENCES: min(self.grid.shape) > 1,
            Need.HOLDOUT: bool(self.held_out.any()),
            Need.TARGETS: self.targets is not None,
            Need.SEVERAL_FACTORS: len(self.grid.shape) > 1,
            Need.TWO_FACTORS: len(self.grid.shape) == 2,
            Need.THREE_FACTORS: len(self.grid.shape) > 2,
            Need.FOUR_POINTS: len(self.points) > 3,
            Need.WHOLE_GRID: self.neighbours is None,
        }[need]


@dataclass(frozen=True)
class Column:
    """One tensor per stage: what it is, and where it is shown."""

    name: str
    description: str
    reference: str = ""
    """The paper's equation or figure."""
    dims: tuple[str, ...] = ()
    """Axes behind the members' and the stage's."""
    heading: str = ""
    """In the summary of a diagnosis; a column without one is not in it. Values per factor are averaged."""
    form: str = ".3f"
    """How the summary formats a value."""
    panel: str = ""
    """Title of the panel in the figure of a diagnosis that draws it; none without one."""
    line: str = ""
    """Label of its line in that panel."""
    study: str = ""
    """Its name in studies' Datasets where that is another one (stored results keep theirs)."""
    labels: bool = False
    """Whether its numbers name something, so that a mean of them means nothing."""

    @property
    def study_name(self) -> str:
        return self.study or self.name


Evaluate = Callable[[Stage], Mapping[str, Tensor]]


@dataclass(frozen=True)
class StageMetric:
    """A function of a stage with all that is declared about it."""

    name: str
    evaluate: Evaluate
    columns: tuple[Column, ...]
    needs: tuple[Need, ...]
    """It is not evaluated where one of them is missing."""
    version: int
    """To be raised when what is measured changes, so that results that depend on it are measured again."""
    in_studies: bool
    """Whether studies' stage profile has it too; what is large or slow is left to `diagnose`."""
    thorough: bool = False
    """Whether it takes so long that it is left out unless it is asked for."""


class StageMetrics(dict[str, StageMetric]):
    """All registered stage metrics by name, in the order of registration."""

    def register(self, metric: StageMetric) -> None:
        """Add a metric; its name and its columns' names must not be taken."""
        if metric.name in self:
            raise InvalidValue("metric", metric.name, "a name that is not taken yet")
        taken = {column.name for column in self.columns()}
        taken_in_studies = {column.study_name for other in self.in_studies() for column in other.columns}
        for column in metric.columns:
            if not column.name.isidentifier() or column.name in taken:
                raise InvalidValue("column", column.name, "a name of letters and underscores that is not taken yet")
            if metric.in_studies and column.study_name in taken_in_studies:
                raise InvalidValue("column.study", column.study_name, "a name that no other metric has in studies")
        self[metric.name] = metric

    def unregister(self, name: str) -> None:
        """Forget a metric (for tests that register a passing one)."""
        del self[name]

    def columns(self) -> list[Column]:
        """The columns of all metrics."""
        return [column for metric in self.values() for column in metric.columns]

    def in_studies(self) -> list[StageMetric]:
        """The metrics of studies' stage profile."""
        return [metric for metric in self.values() if metric.in_studies]

    def __missing__(self, name: str) -> StageMetric:
        raise InvalidValue("metric", name, f"one of {listed(self)}")


STAGE_METRICS = StageMetrics()


def stage_metric(
    name: str,
    *columns: Column,
    needs: Iterable[Need] = (),
    version: int = 1,
    in_studies: bool = True,
    thorough: bool = False,
) -> Callable[[Evaluate], Evaluate]:
    """Decorator that registers a function of a stage, which returns exactly these columns, as a `StageMetric`."""

    def register(evaluate: Evaluate) -> Evaluate:
        STAGE_METRICS.register(StageMetric(name, evaluate, columns, tuple(needs), version, in_studies, thorough))
        return evaluate

    return register


STAGE_PROFILE = "stage_profile"
"""Stands for all metrics of studies' stage profile."""
FUNCTION_VERSIONS: dict[str, int] = {}
"""Of the functions that studies call themselves, those whose numbers have changed; all others have version 1."""


def metric_versions(names: Iterable[str]) -> dict[str, int]:
    """Versions of functions and stage metrics by name; `stage_profile` gives those of all that studies' profile has.

    >>> metric_versions(["gram_matrix"])
    {'gram_matrix': 1}
    """
    numbers: dict[str, int] = {}
    for name in names:
        if name == STAGE_PROFILE:
            numbers |= {metric.name: metric.version for metric in STAGE_METRICS.in_studies()}
        elif name in STAGE_METRICS and name not in FUNCTION_VERSIONS:
            numbers[name] = STAGE_METRICS[name].version
        else:
            numbers[name] = FUNCTION_VERSIONS.get(name, 1)
    return numbers


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


def stage_profile(stages: Iterable[Stage], metrics: Iterable[str]) -> StageProfile:
    """The metrics named, of every stage; those whose needs are not met are left out."""
    chosen = [STAGE_METRICS[name] for name in metrics]
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
