"""The registry of stage metrics: what each needs, which columns it returns, and its version.

A *stage metric* is a function of a `Stage`, one stage of a network over a factor grid, that returns a tensor for each
of its columns. Once registered, it is part of `diagnose` (Dataset, summary and figure), of the studies' stage profile
and of the table in docs/metrics.md. `stage_profile` evaluates stages one by one, so memory holds few of them at a time.

>>> @stage_metric("loudness", Column("loudness", "mean square of the activations", heading="loudness"))
... def evaluate_loudness(stage: Stage) -> dict[str, Tensor]:
...     return {"loudness": stage.features.square().mean(dim=(-2, -1))}
>>> metric_versions(["loudness"])
{'loudness': 1}
>>> STAGE_METRICS.unregister("loudness")

Conventions: member axes come first, `(*member, …)`. A column's other axes are `point` (in the grid's order; a Dataset
has one axis per factor instead), `factor`, `other_factor`, or any other name.
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
    """What a stage metric needs besides the activations; without it, its columns are left out."""

    METRIC = "metric tensor"
    """Exact if encoding and network have a derivative, else by finite differences."""
    DIFFERENCES = "finite differences"
    HOLDOUT = "hold-out"
    TARGETS = "targets"
    SEVERAL_FACTORS = "two factors or more"
    TWO_FACTORS = "two factors"
    THREE_FACTORS = "three factors or more"
    FOUR_POINTS = "four points or more"
    WHOLE_GRID = "the whole grid"
    """Neighbouring grid points, which a random sub-grid lacks."""


@dataclass(frozen=True)
class Stage:
    """One stage of a network over a factor grid."""

    name: str
    features: Float[Tensor, "*member point feature"]
    points: Float[Tensor, "point factor"]
    grid: FactorGrid
    held_out: Bool[Tensor, " point"]
    """On the CPU: indexing by a mask on the GPU would wait for the GPU."""
    exact: Float[Tensor, "*member point factor factor"] | None = None
    """The exact metric tensor; None if there is no derivative."""
    targets: Tensor | None = None
    """Target outputs of the network, `(point, …)`."""
    neighbours: Float[Tensor, "*member point factor factor"] | None = None
    """On a sub-grid, the metric tensor from differences to neighbours in the whole grid, if it is needed."""
    is_whole: bool = True
    """Whether the grid is the whole grid rather than a sub-grid."""

    @cached_property
    def grams(self) -> tuple[Tensor, Tensor]:
        """Gram matrices of the centred and of the raw features, `(*member, point, point)`."""
        return both_grams(self.features)

    @property
    def gram(self) -> Float[Tensor, "*member point point"]:
        """Gram matrix of the centred features, in double precision."""
        return self.grams[0]

    @cached_property
    def coordinates(self) -> Float[Tensor, "*member point direction"]:
        """The points in coordinates of the subspace that they span, which is cheaper than in many features."""
        return point_coordinates(self.gram)

    @cached_property
    def recovery(self) -> Recovery:
        """Errors of decoders from the stage back to the factors, with fewer folds for very small grids."""
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
        """The exact metric tensor if there is one, else that from finite differences."""
        return self.differences if self.exact is None else self.exact

    def has(self, need: Need) -> bool:
        """Whether the stage fulfils a need of a metric."""
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
    """A tensor that a metric returns for each stage: its description, and where it is shown."""

    name: str
    description: str
    reference: str = ""
    """Equation or figure of the paper."""
    dims: tuple[str, ...] = ()
    """Axes after those of members and stages."""
    heading: str = ""
    """Heading in the summary of a diagnosis, which averages over factors; columns without one are not shown."""
    form: str = ".3f"
    """Number format in the summary."""
    panel: str = ""
    """Title of the panel that shows it in the figure of a diagnosis; columns without one are not drawn."""
    line: str = ""
    """Label of the line in that panel."""
    study: str = ""
    """Name in studies' Datasets, if it differs (stored results keep old names)."""
    labels: bool = False
    """Whether the numbers are labels, whose mean makes no sense."""

    @property
    def study_name(self) -> str:
        return self.study or self.name


Evaluate = Callable[[Stage], Mapping[str, Tensor]]


@dataclass(frozen=True)
class StageMetric:
    """A registered function of a stage."""

    name: str
    evaluate: Evaluate
    columns: tuple[Column, ...]
    needs: tuple[Need, ...]
    """The metric is left out if one of them is missing."""
    version: int
    """Raise it when the numbers change, so that stored results are measured again."""
    in_studies: bool
    """Whether it is part of the studies' stage profile, which excludes large and expensive metrics."""
    thorough: bool = False
    """Whether it is expensive and therefore only computed on request."""


class StageMetrics(dict[str, StageMetric]):
    """All registered stage metrics by name, in the order of registration."""

    def register(self, metric: StageMetric) -> None:
        """Add a metric; its name and its columns' names must not be taken."""
        if metric.name in self:
            raise InvalidValue("metric", metric.name, "a name that is not taken yet")
        taken = self.columns()
        taken_in_studies = {column.study_name for other in self.in_studies() for column in other.columns}
        for column in metric.columns:
            if not column.name.isidentifier() or column.name in taken:
                raise InvalidValue("column", column.name, "a name of letters and underscores that is not taken yet")
            if metric.in_studies and column.study_name in taken_in_studies:
                raise InvalidValue("column.study", column.study_name, "a name that no other metric uses in studies")
        self[metric.name] = metric

    def unregister(self, name: str) -> None:
        """Remove a metric."""
        del self[name]

    def columns(self) -> dict[str, Column]:
        """The columns of all metrics, by name."""
        return {column.name: column for metric in self.values() for column in metric.columns}

    def by_column(self) -> dict[str, StageMetric]:
        """The metric that returns each column, by the column's name."""
        return {column.name: metric for metric in self.values() for column in metric.columns}

    def in_studies(self) -> list[StageMetric]:
        """The metrics of the studies' stage profile."""
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
    """Decorator that registers a function of a stage, which must return exactly these columns, as a `StageMetric`."""

    def register(evaluate: Evaluate) -> Evaluate:
        studies = in_studies and not thorough
        STAGE_METRICS.register(StageMetric(name, evaluate, columns, tuple(needs), version, studies, thorough))
        return evaluate

    return register


STAGE_PROFILE = "stage_profile"
"""Name that stands for all metrics of the studies' stage profile."""
FUNCTION_VERSIONS: dict[str, int] = {}
"""Versions of functions that studies call directly, if their numbers have changed; all others have version 1."""


def metric_versions(names: Iterable[str]) -> dict[str, int]:
    """Versions of functions and stage metrics by name; `stage_profile` stands for all metrics of that profile.

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
    """By column name, a `(*member, …)` tensor for each stage."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Metrics that were not evaluated, each with the need that was not fulfilled."""


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
    """Yield every stage of a network over a grid, in the order in which the network runs them.

    The arguments are the fields of `Stage`; `exact` and `neighbours` hold metric tensors by stage name.
    """
    for name, activations in features(reader, points, members=members, memory=memory):
        metric = None if exact is None else exact[name]
        differences = None if neighbours is None else neighbours[name]
        yield Stage(name, activations, points, grid, held_out, metric, targets, differences, is_whole)


def stage_profile(stages: Iterable[Stage], metrics: Iterable[str]) -> StageProfile:
    """The named metrics of every stage; those whose needs are not fulfilled are left out."""
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
                raise InvalidValue(f"metric {metric.name}", sorted(values), f"the columns that it declares: {declared}")
            for name, value in values.items():
                profile.columns.setdefault(name, []).append(value)
    return profile


def usual_metrics(thorough: bool | Collection[str] = False) -> list[str]:
    """The metrics that are evaluated by default, with all, none or the named ones of the expensive metrics."""
    named = [STAGE_METRICS[name].name for name in ([] if isinstance(thorough, bool) else thorough)]
    return [name for name, metric in STAGE_METRICS.items() if not metric.thorough or thorough is True or name in named]
