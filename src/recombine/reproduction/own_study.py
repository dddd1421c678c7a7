"""A study of your own: named specs, claims about a measure of their networks, and a figure of every measure.

`own_paper` makes a paper with one study of them, so that criteria are registered, runs resumed, networks counted and
verdicts reached as in the paper of this package. A file says the same without Python (docs/own_studies.md).

A measure is a stored score, such as `ood_accuracy`, or a stage metric and where along the stages it is read, such as
`factorization:output`. Networks count if they learnt the combinations that are not held out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field, create_model, model_validator

from recombine.errors import InvalidValue, listed, nearest
from recombine.keys import json_digest
from recombine.metrics.registry import STAGE_METRICS, STAGE_PROFILE
from recombine.panels import interval_dots
from recombine.records import Frozen
from recombine.reproduction import tables
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, Fit, Learnt
from recombine.reproduction.figures import FigureSpec, Section
from recombine.reproduction.intervals import Interval, TrimmedMean
from recombine.reproduction.measuring import TRAINED, Batch, base_attributes, stage_dims, stage_profile, tabulate
from recombine.reproduction.paper import Paper
from recombine.reproduction.preset import Count, Preset, Seeds
from recombine.reproduction.report.verdicts import interval_text
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import Precision, RunSpec
from recombine.store import Summary, flattened
from recombine.store.summary import differing
from recombine.tasks import Task
from recombine.training.evaluate import REGIONS, Evaluator

if TYPE_CHECKING:
    import xarray

SCORES = {
    "ood_accuracy": "held-out accuracy", "id_accuracy": "accuracy at kept combinations",
    "ood_over_blank": "held-out error over blank", "id_over_blank": "error over blank at kept combinations",
    "ood_mse": "held-out squared error", "id_mse": "squared error at kept combinations",
}  # fmt: skip
"""Stored scores, in words."""
EXPLAINED = {"ood_r2": "R² on held-out combinations", "id_r2": "R² on kept combinations"}
"""Share of the images' variance that outputs explain: computed where it is asked for."""
PLACES = (
    "first_hidden", "middle_hidden", "last_hidden", "output", "mean_of_hidden", "mean_after_input", "fall",
    "largest_drop",
)  # fmt: skip
"""Where along the stages a metric is read, or how it changes along them: functions of `tables`."""
LEARNT = Learnt()
Arms = Annotated[tuple[str, ...], BeforeValidator(lambda own: (own,) if isinstance(own, str) else own)]


def words_of(measure: str) -> str:
    """Return a measure in words; raise if there is none of this name."""
    name, colon, place = measure.partition(":")
    metrics = {
        column.study_name: column.description
        for metric in STAGE_METRICS.in_studies()
        for column in metric.columns
        if column.dims in ((), ("factor",))
    }
    if name in SCORES | EXPLAINED and not colon:
        return (SCORES | EXPLAINED)[name]
    if name not in metrics:
        known = nearest(name, [*SCORES, *EXPLAINED, *metrics])
        known = known or f"one of {listed([*SCORES, *EXPLAINED])}, or a stage metric"
        raise InvalidValue("measure", measure, known)
    if place not in PLACES:
        raise InvalidValue("measure", measure, f"{name} and where it is read: {name}:PLACE with {listed(PLACES)}")
    return f"{metrics[name]}, {place.replace('_', ' ')}"


@lru_cache(maxsize=16)
def _spread(task: Task, device: torch.device) -> dict[str, float]:
    return Evaluator(task, device, chunk=128).spread()


def _explained(batch: Batch) -> dict[str, Any]:
    """Return R² by region, from the squared errors and the variance of the evaluated images."""
    spread = _spread(batch.task, batch.device)
    return {f"{region}_r2": 1 - batch.scores[f"{region}_mse"] / spread[region] for region in REGIONS}


def values_of(networks: xarray.Dataset, measure: str) -> xarray.DataArray:
    """Return a measure of each network."""
    name, _, place = measure.partition(":")
    return getattr(tables, place)(networks[name]) if place else networks[name]


class OwnClaim(Frozen):
    """A claim about the level of a measure in some arms, or about how far they exceed another arm."""

    text: str
    """The claim, as a sentence."""
    measure: str
    """A score, or a stage metric and where it is read."""
    arms: Annotated[Arms, Field(min_length=1)]
    """The arms that it is about; each is a case."""
    less: str | None = None
    """Arm whose value is subtracted, seed by seed."""
    effect: float | None = None
    """Smallest effect that matters (δ): more is required, and less than −δ means the reverse."""
    above: float | None = None
    """Bound that the value must exceed."""
    below: float | None = None
    """Bound that the value must not reach."""
    between: tuple[float, float] | None = None
    """Bounds that must enclose the value."""
    combine: Literal["all", "any"] = "all"
    """Whether all arms must show it or one suffices."""

    @model_validator(mode="after")
    def _one_range(self) -> OwnClaim:
        words_of(self.measure)
        given = [name for name in ("effect", "above", "below", "between") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidValue("criterion", listed(given), "one of effect, above, below and between")
        if self.effect is not None and self.less is None:
            raise InvalidValue("less", None, "the arm that the effect is compared with")
        return self

    def statement(self, study: str, specs: Mapping[str, RunSpec], learnt: Learnt) -> Statement:
        """Return how it is tested; the arms' specs are part of the criterion."""
        named = [*self.arms, *([self.less] if self.less is not None else [])]
        if unknown := [arm for arm in named if arm not in specs]:
            raise InvalidValue("arms", unknown[0], f"one of {listed(specs)}")
        low, high = self.between or (self.effect if self.above is None else self.above, self.below)
        criterion = Criterion(
            statistic=words_of(self.measure) + (f", less that of {self.less}" if self.less else ""),
            low=low, high=high, is_effect=self.effect is not None, cases=self.arms, combine=self.combine,
            learnt=learnt,
            contrast=", ".join(f"{arm} {json_digest(specs[arm].model_dump(mode='json'))}" for arm in named),
        )  # fmt: skip

        def cases(data: Data) -> dict[str, Sample]:
            return {arm: self._sample(data[study], arm) for arm in self.arms}

        return Statement(criterion, cases)

    def _sample(self, data: xarray.Dataset, arm: str) -> Sample:
        parts = [data.sel(arm=name) for name in (arm, self.less) if name is not None]
        values = [np.asarray(values_of(part, self.measure).values, dtype=float) for part in parts]
        return Sample(values[0] - sum(values[1:]), tuple(_fit(part) for part in parts))


def _fit(networks: xarray.Dataset) -> Fit:
    """Return how well networks fit the kept combinations; accuracy counts where something has a place."""
    names = ("id_over_blank", "id_accuracy", TRAINED)
    error, score, trained = (np.asarray(networks[name].values, dtype=float) for name in names)
    return Fit(error, score, trained == 1)


def _learnt(networks: xarray.Dataset, rule: Learnt) -> xarray.DataArray:
    return networks["id_over_blank"].copy(data=rule.learnt(_fit(networks)))


def own_paper(
    name: str, arms: Mapping[str, RunSpec], claims: Sequence[OwnClaim], *, seeds: int, first_seed: int = 0,
    learnt: Learnt = LEARNT, figures: Sequence[str] = (), question: str = "", title: str = "", source: str = "",
) -> Paper:  # fmt: skip
    """Return a paper with one study: the arms' specs, each with several seeds.

    `figures` are measures; by default, those of the claims.
    """
    measures = list(dict.fromkeys(figures or [claim.measure for claim in claims]))
    all_measures = [*measures, *(claim.measure for claim in claims)]
    staged = sorted({own.partition(":")[0] for own in all_measures if ":" in own})
    precisions = {spec.recipe.precision for spec in arms.values()}
    if len(precisions) != 1:
        raise InvalidValue("precision", listed(sorted(precisions)), "the same for all arms")
    fields: dict[str, Any] = {
        "name": (str, "full"), "seeds": (Seeds, seeds), "extra_seeds": (Seeds, seeds),
        "first_seed": (Count, first_seed), "precision": (Precision, precisions.pop()),
    }  # fmt: skip
    preset = create_model("Settings", __base__=Preset, __module__=__name__, **fields)
    called, asked = name, question

    class OwnStudy(Study[Preset]):
        name: ClassVar[str] = called
        question: ClassVar[str] = asked
        settings: ClassVar[type[Preset]] = preset
        metrics: ClassVar[tuple[str, ...]] = (STAGE_PROFILE,) if staged else ()

        def arms(self, preset: Preset) -> list[Arm]:
            recipes = {arm: spec.recipe.replace(precision=preset.precision) for arm, spec in arms.items()}
            return [Arm((arm,), spec.replace(recipe=recipes[arm])) for arm, spec in arms.items()]

        def own_settings(self, fields: Mapping[str, Any]) -> dict[str, Any]:
            # arms are part of what the Dataset depends on, since other names for the same runs need another Dataset
            specs = {arm: spec.model_dump(mode="json") for arm, spec in arms.items()}
            explained = sorted(EXPLAINED.keys() & set(all_measures))
            return {**super().own_settings(fields), "arms": specs, "stages": [*staged, *explained]}

        def measure(self, trials: Trials[Preset]) -> xarray.Dataset:
            def measured(batch: Batch) -> dict[str, Any]:
                more = stage_profile(batch, maps=False) if staged else {}
                return {**batch.scores, **(_explained(batch) if EXPLAINED.keys() & set(all_measures) else {}), **more}

            result = tabulate(trials, ("arm",), measured, stage_dims())
            if missing := [metric for metric in staged if metric not in result]:
                raise InvalidValue("measure", missing[0], "a metric that can be computed for these tasks")
            return result.assign_attrs(base_attributes(trials))

    def estimates(result: xarray.Dataset, measure: str) -> dict[str, Interval]:
        counted = values_of(result, measure).where(_learnt(result, learnt))
        return {arm: TrimmedMean.of(counted.sel(arm=arm).values).interval() for arm in arms}

    def drawn(measure: str) -> FigureSpec:
        words = words_of(measure)

        def draw(result: xarray.Dataset) -> Any:
            values, did = values_of(result, measure), _learnt(result, learnt)
            dots = {arm: (values.sel(arm=arm).values, did.sel(arm=arm).values) for arm in arms}
            found = {arm: (own.value, own.low, own.high) for arm, own in estimates(result, measure).items()}
            return interval_dots(dots, found, words)

        def caption(result: xarray.Dataset) -> str:
            found = ", ".join(f"{arm} {interval_text(own)}" for arm, own in estimates(result, measure).items())
            return (
                f"{words[0].upper()}{words[1:]} by arm, {result.sizes['seed']} seeds. Dots: networks (hollow: did not "
                f"learn). Lines: 20 % trimmed means with 95 % intervals over those that learnt: {found}."
            )

        first = measure == measures[0]
        return FigureSpec(measure.replace(":", "_"), words, (called,), draw, caption, table if first else None)

    def perfect(result: xarray.Dataset, measure: str, arm: str) -> str:
        if not measure.endswith("_accuracy"):
            return ""
        values = result[measure].sel(arm=arm)
        return f"; {int((values == 1).sum())} of {int(values.notnull().sum())} networks perfect"

    def table(result: xarray.Dataset) -> list[list[str]]:
        did, trained = _learnt(result, learnt), result[TRAINED] == 1
        found = {measure: estimates(result, measure) for measure in measures}
        fields = {arm: flattened(spec.model_dump(mode="json")) for arm, spec in arms.items()}
        names = differing(list(fields.values()))
        labels = {arm: Summary({name: own.get(name) for name in names}, 0, 0, {}).label for arm, own in fields.items()}
        rows = [
            [arm, labels[arm], f"{int(did.sel(arm=arm).sum())}/{int(trained.sel(arm=arm).sum())}",
             *(interval_text(found[measure][arm]) + perfect(result, measure, arm) for measure in measures)]
            for arm in arms
        ]  # fmt: skip
        return [["arm", "settings", "learnt / trained", *map(words_of, measures)], *rows]

    judged = [
        Claim(f"S{number}", own.text, source or name, (own.statement(name, arms, learnt),), (name,))
        for number, own in enumerate(claims, 1)
    ]
    specs = [drawn(measure) for measure in measures]
    section = Section("arms", "Results", "", tuple(own.name for own in specs), tuple(own.name for own in judged))
    return Paper.of(
        name, [OwnStudy()], judged, specs, title=title or name, source=source, question=question or title or name,
        sections=(section,),
    )  # fmt: skip
