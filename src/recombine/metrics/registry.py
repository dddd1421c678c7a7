"""Registry of stage metrics, with the requirements, columns and version of each.

A *stage metric* maps a `Stage` (one stage of a network, evaluated on a factor grid) to a tensor for each of its
columns. Registered metrics appear in the results of `diagnose` (Dataset, summary and figure), in the studies' stage
profile and in docs/metrics.md. `stage_profile` evaluates one stage at a time to limit memory use.

>>> @stage_metric("loudness", Column("loudness", "mean square of the activations", heading="loudness"))
... def evaluate_loudness(stage: Stage) -> dict[str, Tensor]:
...     return {"loudness": stage.features.square().mean(dim=(-2, -1))}
>>> metric_versions(["loudness"])
{'loudness': 1}
>>> STAGE_METRICS.unregister("loudness")

Conventions: member axes come first, `(*member, …)`. A column's other axes are `point` (in grid order; Datasets have one
axis per factor instead), `factor`, `other_factor`, or any other name.
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
from recombine.metrics.stages import MEMORY, Reader, features, finite_difference_metric, precision
from recombine.theory.projections import both_grams, point_coordinates
from recombine.theory.reversibility import FOLDS, Recovery, recovery


class Need(StrEnum):
    """A requirement of a stage metric besides the activations; if it is not met, the metric's columns are omitted."""

    METRIC = "metric tensor"
    """Exact if the encoding and the network are differentiable, otherwise computed from finite differences."""
    DIFFERENCES = "finite differences"
    HOLDOUT = "hold-out"
    TARGETS = "targets"
    SEVERAL_FACTORS = "two factors or more"
    TWO_FACTORS = "two factors"
    THREE_FACTORS = "three factors or more"
    FOUR_POINTS = "four points or more"
    WHOLE_GRID = "the whole grid"
    """Needed for differences between neighbouring grid points, which a random sub-grid lacks."""


@dataclass(frozen=True)
class Stage:
    """One stage of a network over a factor grid."""

    name: str
    features: Float[Tensor, "*member point feature"]
    points: Float[Tensor, "point factor"]
    grid: FactorGrid
    held_out: Bool[Tensor, " point"]
    """Always on the CPU, since indexing with a mask on the GPU would force a synchronisation."""
    exact: Float[Tensor, "*member point factor factor"] | None = None
    """Exact metric tensor; None if the stage is not differentiable."""
    targets: Tensor | None = None
    """Target outputs of the network, `(point, …)`."""
    neighbours: Float[Tensor, "*member point factor factor"] | None = None
    """On a sub-grid, the metric tensor from differences between neighbours in the whole grid, if needed."""
    is_whole: bool = True
    """Whether the grid is the whole grid rather than a sub-grid."""

    @cached_property
    def grams(self) -> tuple[Tensor, Tensor]:
        """Gram matrices of the centred and the raw features, `(*member, point, point)`."""
        return both_grams(self.features)

    @property
    def gram(self) -> Float[Tensor, "*member point point"]:
        """Gram matrix of the centred features, in double precision."""
        return self.grams[0]

    @cached_property
    def coordinates(self) -> Float[Tensor, "*member point direction"]:
        """Coordinates of the points in the subspace that they span, which is cheaper than using all features."""
        return point_coordinates(self.gram)

    @cached_property
    def recovery(self) -> Recovery:
        """Errors in decoding the factors from the stage, with fewer cross-validation folds on very small grids."""
        return recovery(self.gram, self.points, folds=min(FOLDS, len(self.points) // 2))

    @cached_property
    def differences(self) -> Float[Tensor, "*member point factor factor"]:
        """The metric tensor from finite differences, in double precision if single precision overflows."""
        if self.neighbours is not None:
            return self.neighbours
        spacing = [factor.spacing if factor.given is None else factor.values for factor in self.grid.factors]
        metric = finite_difference_metric(self.features, self.grid.shape, spacing)
        if bool(metric.isfinite().all()):
            return metric
        return finite_difference_metric(self.features.to(precision(self.features.device)), self.grid.shape, spacing)

    @property
    def metric(self) -> Float[Tensor, "*member point factor factor"]:
        """Exact metric tensor if available, otherwise the one from finite differences."""
        return self.differences if self.exact is None else self.exact

    def has(self, need: Need) -> bool:
        """Return whether the stage meets a metric's requirement."""
        return {
            Need.METRIC: True,
            Need.DIFFERENCES: min(self.grid.shape) > 1,
            Need.HOLDOUT: bool(self.held_out.any()),
            Need.TARGETS: self.targets is not None,
            Need.SEVERAL_FACTORS: len(self.grid.shape) > 1,
            Need.TWO_FACTORS: len(self.grid.shape) == 2,
            Need.THREE_FACTORS: len(self.grid.shape) > 2,
            Need.FOUR_POINTS: len(self.points) > 3,
            Need.WHOLE_GRID: self.is_whole,
        }[need]


@dataclass(frozen=True)
class Column:
    """Description and display settings of a tensor returned by a metric for each stage."""

    name: str
    description: str
    reference: str = ""
    """Equation or figure of the paper."""
    dims: tuple[str, ...] = ()
    """Axes after the member and stage axes."""
    heading: str = ""
    """Heading in the summary of a diagnosis, which averages over factors; columns without a heading are not shown."""
    form: str = ".3f"
    """Number format in the summary."""
    panel: str = ""
    """Title of the panel in the figure of a diagnosis; columns without a title are not plotted."""
    line: str = ""
    """Label of the line in that panel."""
    study: str = ""
    """Name in the Datasets of studies, if different (stored results keep old names)."""
    labels: bool = False
    """Whether the values are labels, which must not be averaged."""

    @property
    def study_name(self) -> str:
        return self.study or self.name


Evaluate = Callable[[Stage], Mapping[str, Tensor]]


@dataclass(frozen=True)
class StageMetric:
    """A registered stage metric."""

    name: str
    evaluate: Evaluate
    columns: tuple[Column, ...]
    needs: tuple[Need, ...]
    """Requirements; the metric is left out if any of them is not met."""
    version: int
    """Increase this when the values change, so that stored results are recomputed."""
    in_studies: bool
    """Whether the metric is part of the studies' stage profile, which excludes large and expensive metrics."""
    thorough: bool = False
    """Whether the metric is expensive and therefore computed only on request."""


class StageMetrics(dict[str, StageMetric]):
    """All registered stage metrics by name, in registration order."""

    def register(self, metric: StageMetric) -> None:
        """Add a metric. Its name and column names must not be in use already."""
        if metric.name in self:
            raise InvalidValue("metric", metric.name, "a name that is not yet in use")
        taken = self.columns()
        taken_in_studies = {column.study_name for other in self.in_studies() for column in other.columns}
        for column in metric.columns:
            if not column.name.isidentifier() or column.name in taken:
                raise InvalidValue("column", column.name, "an identifier that is not yet in use")
            if metric.in_studies and column.study_name in taken_in_studies:
                raise InvalidValue("column.study", column.study_name, "a name not used in studies by any other metric")
        self[metric.name] = metric

    def unregister(self, name: str) -> None:
        """Remove a metric."""
        del self[name]

    def columns(self) -> dict[str, Column]:
        """Return the columns of all metrics by name."""
        return {column.name: column for metric in self.values() for column in metric.columns}

    def by_column(self) -> dict[str, StageMetric]:
        """Return the metric that computes each column, by column name."""
        return {column.name: metric for metric in self.values() for column in metric.columns}

    def in_studies(self) -> list[StageMetric]:
        """Return the metrics in the studies' stage profile."""
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
    """Return a decorator that registers a function, which must return exactly these columns, as a stage metric."""

    def register(evaluate: Evaluate) -> Evaluate:
        studies = in_studies and not thorough
        STAGE_METRICS.register(StageMetric(name, evaluate, columns, tuple(needs), version, studies, thorough))
        return evaluate

    return register


STAGE_PROFILE = "stage_profile"
"""Name that stands for all metrics in the studies' stage profile."""
FUNCTION_VERSIONS: dict[str, int] = {"interior": 2}
"""Versions of functions that studies call directly and whose values have changed; all others have version 1."""


def metric_versions(names: Iterable[str]) -> dict[str, int]:
    """Return the versions of functions and stage metrics; `stage_profile` stands for all metrics in that profile.

    >>> metric_versions(["gram_matrix"])
    {'gram_matrix': 1}
    """
    numbers: dict[str, int] = {}
    for name in names:
        if name == STAGE_PROFILE:
            numbers |= {metric.name: metric.version for metric in STAGE_METRICS.in_studies()}
        else:
            metric = STAGE_METRICS.get(name)
            numbers[name] = FUNCTION_VERSIONS.get(name, metric.version if metric else 1)
    return numbers


@dataclass
class StageProfile:
    """Columns of registered metrics, one tensor per stage."""

    stages: list[str] = field(default_factory=list)
    columns: dict[str, list[Tensor]] = field(default_factory=dict)
    """Tensors `(*member, …)` for each stage, by column name."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Metrics that were not evaluated, each with the requirement that was not met."""


def read_stages(
    reader: Reader,
    points: Float[Tensor, "point factor"],
    grid: FactorGrid,
    held_out: Bool[Tensor, " point"],
    *,
    exact: Mapping[str, Tensor] | None = None,
    targets: Tensor | None = None,
    neighbours: Mapping[str, Tensor] | None = None,
    is_whole: bool = True,
    members: int = 0,
    memory: int = MEMORY,
) -> Iterator[Stage]:
    """Yield every stage of a network on a grid, in execution order.

    The arguments are the fields of `Stage`; `exact` and `neighbours` hold metric tensors by stage name.
    """
    for name, activations in features(reader, points, members=members, memory=memory):
        metric = None if exact is None else exact[name]
        differences = None if neighbours is None else neighbours[name]
        yield Stage(name, activations, points, grid, held_out, metric, targets, differences, is_whole)


def stage_profile(stages: Iterable[Stage], metrics: Iterable[str]) -> StageProfile:
    """Evaluate the named metrics at every stage, omitting those whose requirements are not met."""
    chosen = [STAGE_METRICS[name] for name in metrics]
    profile = StageProfile()
    for stage in stages:
        profile.stages.append(stage.name)
        for metric in chosen:
            if missing := [need for need in metric.needs if not stage.has(need)]:
                profile.left_out[metric.name] = str(missing[0])
                continue
            values = metric.evaluate(stage)
            declared = [column.name for column in metric.columns]
            if sorted(values) != sorted(declared):
                raise InvalidValue(f"metric {metric.name}", sorted(values), f"the declared columns: {declared}")
            for name, value in values.items():
                profile.columns.setdefault(name, []).append(value)
    return profile


def usual_metrics(thorough: bool | Collection[str] = False) -> list[str]:
    """Return the names of the default metrics; `thorough` adds all expensive metrics, or only the named ones."""
    named = [STAGE_METRICS[name].name for name in ([] if isinstance(thorough, bool) else thorough)]
    return [name for name, metric in STAGE_METRICS.items() if not metric.thorough or thorough is True or name in named]
