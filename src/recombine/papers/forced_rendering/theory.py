"""Do networks that compose have the structure that Appendix A of the paper requires? (§3.4, App. A)

The networks are CNNs and MLPs with bump codes and low-rank decoders with one-hot codes, each without a remedy, with one
(stripes and 100 bumps, or both penalties), trained on the whole grid, or untrained. We measure the Schmidt rank of the
outputs' kernel over the hold-out, i.e. the effective number of products of single-factor kernels in it (A.4); whether a
linear map (Eq. 24) or an invertible flow (Eq. 25–27) splits a stage into one block per factor; how well factors can be
decoded, and the rank of the Jacobian (A.3); the kernel's position between memorisation and factorization (A.5); and the
share of a stage that is a sum of blocks, and the width of the hole (§3.4; in the figure only).

Networks without a remedy are compared, seed by seed, with composing networks of the same architecture. All claims are
our own and exploratory, since Appendix A measures nothing.

Known answers: images of bumps have the kernel k_x ⊗ k_y, with Schmidt rank 1 over any box; a sum of two images, one per
factor, has a kernel k_x + k_y, with rank 2 at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure
from torch import Tensor

from recombine.metrics import effective_rank, gram_matrix, landmarks, metric_tensor, schmidt_spectrum
from recombine.metrics.registry import STAGE_METRICS, read_stages, stage_profile
from recombine.panels import band, group_dots, letter, seed_count, styled
from recombine.papers.forced_rendering.controls import tabulated_with_untrained
from recombine.papers.forced_rendering.mlp import MLPSettings, matched_depth
from recombine.papers.forced_rendering.palette import ARCHITECTURES
from recombine.papers.forced_rendering.penalties import BOTH, NONE, PenaltySettings, penalised_spec
from recombine.papers.forced_rendering.presets import kept_combinations, whole_grid
from recombine.papers.forced_rendering.samples import Statistic, difference, measured, number
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import MANY, StripeSettings
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, above, effect
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import Batch, base_attributes
from recombine.reproduction.preset import Count, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import first_hidden, last_hidden, mean_of_hidden, output
from recombine.tasks import BumpTask
from recombine.theory.factorization import nonlinear_factorization

FAMILIES = {
    family: (family, f"{family}, {remedy}", f"{family}, whole grid", f"{family}, untrained")
    for family, remedy in {"CNN": "stripes", "low-rank": "penalties", "MLP": "stripes"}.items()
}
"""Arms (experimental conditions) by architecture: no remedy, with a remedy, whole grid, and untrained."""
KINDS = ("no remedy", "remedy", "whole grid", "untrained")
WHOLE = {family: arms[2] for family, arms in FAMILIES.items()}
UNTRAINED = {family: arms[3] for family, arms in FAMILIES.items()}
FAILING = {family: arms[0] for family, arms in FAMILIES.items()}
COMPOSING = {"CNN": FAMILIES["CNN"][1], "low-rank": FAMILIES["low-rank"][1], "MLP": WHOLE["MLP"]}
"""Composing arm of each architecture. MLPs do not compose with stripes (30 % of bumps in place, seeds 0 to 7)."""
INITIAL = {untrained: failing for failing, _, _, untrained in FAMILIES.values()}
"""Untrained arms, mapped to the arms whose initial weights they share."""
FLOW = "nonlinear_factorization"
STAGE_COLUMNS = (
    "kernel_axis", "linear_factorization", "factor_recovery", "factor_recovery_held_out", "reversibility", "additivity",
    "hole",
)  # fmt: skip
"""Registered metrics that are computed at every stage."""
DIMS: Mapping[str, Sequence[str]] = {
    **{column.name: ("stage",) for name in (*STAGE_COLUMNS, FLOW) for column in STAGE_METRICS[name].columns},
}
COARSE = 16
"""Grids with more values per factor are thinned to every other one for ranks over the whole grid."""


class Settings(MLPSettings, StripeSettings, PenaltySettings):
    theory_flow_steps: Count = 150
    """Maximum number of training steps for a flow that splits a stage into blocks."""
    theory_seeds: Seeds = 40
    """Number of seeds in the theory study."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"theory_flow_steps": 20, "theory_seeds": 1}}


class TheoryStudy(Study[Settings]):
    name: ClassVar[str] = "theory"
    question: ClassVar[str] = "Do networks that compose have the structure that Appendix A requires?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = (
        "effective_rank", "extreme_pixel", "gram_matrix", "hits", "landmarks", "metric_tensor",
        "nonlinear_factorization", "schmidt_spectrum", "squared_error", *STAGE_COLUMNS,
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        cnn, low_rank = preset.spec(), penalised_spec(preset, NONE)
        # The MLP's number of stages is the closest to the CNN's.
        mlp = preset.mlp_spec("bump", matched_depth(preset.mlp_depths, preset.depth))
        bumps = min(MANY, kept_combinations(cnn))
        specs = {
            "CNN": (cnn, preset.striped_spec(bumps)),
            "MLP": (mlp, preset.striped_spec(bumps, decoder=mlp.decoder)),
            "low-rank": (low_rank, penalised_spec(preset, BOTH)),
        }
        return [
            Arm((arm,), spec, seeds=preset.theory_seeds)
            for family, (failing, remedied) in specs.items()
            for arm, spec in zip(FAMILIES[family], (failing, remedied, whole_grid(failing)), strict=False)
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            return {
                **batch.scores, **training_fit(batch), **output_ranks(batch),
                **stage_columns(batch, trials.preset.theory_flow_steps),
            }  # fmt: skip

        result = tabulated_with_untrained(trials, INITIAL, measured, DIMS)
        attributes = base_attributes(trials, size=trials.preset.size)
        task = trials.first.spec.task
        assert isinstance(task, BumpTask)
        known = landmarks(task.grid.shape, bump=task.sigma)
        places = ("landmark", [float(place) for place in known.values()])
        return result.assign(landmark_place=places).assign_coords(landmark=list(known)).assign_attrs(attributes)


def output_ranks(batch: Batch) -> dict[str, Tensor]:
    """Return the ranks of the networks' outputs, without the background."""
    task = batch.task
    outputs = batch.outputs(task.grid.points).flatten(2) - task.background
    return ranks_of_outputs(outputs.to(batch.device), task.grid.shape, task.held_out)


def ranks_of_outputs(outputs: Tensor, shape: tuple[int, ...], held_out: Tensor) -> dict[str, Tensor]:
    """Return Schmidt ranks of the cosine kernel over the hold-out (NaN if it is not a box) and over the whole grid."""
    inside = held_out.unflatten(0, shape)
    box = tuple(int(inside.movedim(axis, 0).flatten(1).any(dim=1).sum()) for axis in range(2))
    held = torch.full((len(outputs),), torch.nan, dtype=torch.float64)
    if box[0] * box[1] == int(held_out.sum()):
        held = _schmidt_rank(outputs[:, held_out.to(outputs.device)], box)
    step = 2 if max(shape) > COARSE else 1
    some = outputs.unflatten(1, shape)[:, ::step, ::step]
    return {"held_schmidt": held, "whole_schmidt": _schmidt_rank(some.flatten(1, 2), tuple(some.shape[1:3]))}


def _schmidt_rank(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the effective number of products of single-factor kernels in each member's cosine kernel."""
    spectra = [schmidt_spectrum(gram_matrix(member.double(), "cosine"), shape) for member in images]
    return effective_rank(torch.stack(spectra).square())


def stage_columns(batch: Batch, flow_steps: int) -> dict[str, np.ndarray]:
    """Return registered metrics of every stage, averaged over factors, and a flow's score at the last hidden stage."""
    task, reader, memory = batch.task, batch.reader(), batch.memory
    points = task.grid.points.to(batch.device)
    exact = metric_tensor(reader, points, members=1, memory=memory) if task.encoding.differentiable else None
    stages = read_stages(reader, points, task.grid, task.held_out, exact=exact, members=1, memory=memory)
    columns: dict[str, list[Tensor]] = {}
    last_hidden_name = batch.spec.module().stage_names[-2]
    for stage in stages:
        own = {name: value for name, (value,) in stage_profile([stage], STAGE_COLUMNS).columns.items()}
        own[FLOW] = torch.full((len(batch),), torch.nan)
        if stage.name == last_hidden_name:
            flow = nonlinear_factorization(
                stage.coordinates, stage.grid.shape, stage.held_out, steps=flow_steps, permutations=0
            )
            own[FLOW] = torch.minimum(flow.score, flow.recovered)
        for name, value in own.items():
            columns.setdefault(name, []).append(value.reshape(len(batch), -1).mean(dim=1).cpu())
    return {name: torch.stack(rows, dim=1).float().cpu().numpy() for name, rows in columns.items()}


STUDY = TheoryStudy()


def linear_split(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the mean over hidden stages of the linear test's R²; negative values count as 0."""
    return mean_of_hidden(networks["linear_factorization"].clip(min=0))


def best_split(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the R² of blocks at the last hidden stage after a linear map or a flow, whichever is better."""
    # flows are fitted only to the last hidden stage
    maps = [last_hidden(networks["linear_factorization"]), networks[FLOW].max("stage")]
    return xarray.concat(maps, "map").max("map").clip(min=0)


def lost(networks: xarray.Dataset) -> xarray.DataArray:
    """Return 1 − R² of the factors decoded from the last hidden stage at held-out points."""
    return 1 - last_hidden(networks["factor_recovery_held"])


Named = Mapping[str, Statistic]
"""Statistics by what is added to the names of their cases."""


def _level(data: Data, statistics: Named, kind: Mapping[str, str], reached: float = -np.inf) -> dict[str, Sample]:
    """Return statistics of one arm of each architecture.

    If those that saw the whole grid do not reach a value on average, no value counts: the measure does not apply there.
    """
    return {
        f"{family}{words}": _applicable(measured(data["theory"].sel(arm=arm), own), data, family, own, reached)
        for words, own in _measured(data, statistics).items()
        for family, arm in kind.items()
    }


def _against(
    data: Data, statistics: Named, others: Mapping[str, str], sign: int = 1, reached: float = -np.inf
) -> dict[str, Sample]:
    """Return failing-minus-other differences per architecture (the opposite for a sign of −1)."""
    result, cases = data["theory"], {}
    for words, own in _measured(data, statistics).items():
        for family, arm in others.items():
            pair = result.sel(arm=FAILING[family]), result.sel(arm=arm)
            sample = difference(own, *pair, untrained=arm in INITIAL, by=lambda a, b: sign * (a - b))
            cases[f"{family}{words}"] = _applicable(sample, data, family, own, reached)
    return cases


def _measured(data: Data, statistics: Named) -> Named:
    """Return the statistics whose variables are in the Dataset, which may be of an earlier version."""
    found: dict[str, Statistic] = {}
    for words, own in statistics.items():
        with suppress(KeyError):
            number(data["theory"], own)
            found[words] = own
    return found


def _applicable(sample: Sample, data: Data, family: str, statistic: Statistic, reached: float) -> Sample:
    known = number(data["theory"].sel(arm=WHOLE[family]), statistic).mean().item() if np.isfinite(reached) else reached
    return sample if known >= reached else replace(sample, values=np.full_like(sample.values, np.nan))


def _statements(
    described: Criterion, kind: Mapping[str, str], specific: Criterion, statistic: Statistic, otherwise: Named,
    sign: int = 1,
) -> tuple[Statement, Statement]:  # fmt: skip
    """State the level of one kind of network, and how failing networks differ from composing ones."""
    own = {"": statistic}
    alternatives = {f", {words}": other for words, other in otherwise.items()}
    controls = {"whole grid": WHOLE, "untrained": UNTRAINED}

    def against_controls(data: Data, **parameters: float) -> dict[str, Sample]:
        cases: dict[str, Sample] = {}
        for words, arms in controls.items():
            cases |= _against(data, {f" against {words}": statistic}, arms, sign, **parameters)
        return cases

    return (
        Statement(
            described,
            lambda data, **parameters: _level(data, own, kind, **parameters),
            lambda data, **parameters: _level(data, alternatives, kind, **parameters),
        ),
        Statement(
            specific,
            lambda data, **parameters: _against(data, own, COMPOSING, sign, **parameters),
            lambda data, **parameters: _against(data, alternatives, COMPOSING, sign, **parameters),
            against_controls,
        ),
    )


_claim = partial(Claim, studies=("theory",), ours=True, exploratory=True)
CLAIMS = (
    _claim(
        "C27",
        "What failing networks draw at held-out combinations is more complex, as a sum of products of single-factor "
        "kernels, than what composing ones draw",
        "App. A.1, A.4, Eq. 30–31",
        _statements(
            effect("Schmidt rank of held-out outputs' kernel, failing, above that of bumps (1)", 0.25),
            FAILING,
            effect("Schmidt rank of held-out outputs' kernel, failing less composing", 0.25, word="specific"),
            lambda networks: networks["held_schmidt"] - 1,
            {"whole grid": lambda networks: networks["whole_schmidt"] - 1},
        ),
    ),
    _claim(
        "C28",
        "Composing networks keep the factors in blocks, up to an invertible map, where failing ones do not",
        "§5, App. A.2, Eq. 24–27",
        _statements(
            above("R² of blocks after the better of linear map and flow, held-out points, last hidden stage, composing",
                  0.9, parameters={"reached": 0.9}),
            COMPOSING,
            effect("R² of blocks, held-out points, last hidden stage, composing less failing", 0.1, word="specific",
                   parameters={"reached": 0.9}),
            best_split,
            {
                "linear map, hidden stages": lambda own: mean_of_hidden(own["linear_factorization"].clip(min=0)),
                "linear map, first hidden stage": lambda own: first_hidden(own["linear_factorization"].clip(min=0)),
                "linear map, output": lambda own: output(own["linear_factorization"].clip(min=0)),
            },
            sign=-1,
        ),
    ),
    _claim(
        "C29",
        "Irreversible mixing, by which information about single factors is lost, is a key mechanism by which networks "
        "destroy factorization",
        "App. A.3",
        _statements(
            effect("1 − R² of factors decoded at held-out points, last hidden stage, failing", 0.1),
            FAILING,
            effect("1 − R² of factors decoded at held-out points, failing less composing", 0.1, word="specific"),
            lost,
            {
                "output": lambda own: 1 - output(own["factor_recovery_held"]),
                "all points": lambda own: 1 - last_hidden(own["factor_recovery"]),
            },
        ),
    ),
)  # fmt: skip

ALONG_STAGES = {
    "linear_factorization": "blocks, linear map, R²",
    "factor_recovery_held": "factors decoded, R²",
    "additivity": "variance, sum of blocks",
    "hole_openness": "width of the hole",
}
"""Variables plotted against stage, mapped to their column titles."""


def theory_figure(result: xarray.Dataset) -> Figure:
    """Plot Schmidt ranks, the kernel axis and four variables along the stages, one row per architecture."""
    with styled():
        figure, axes = pyplot.subplots(
            len(FAMILIES), 2 + len(ALONG_STAGES), figsize=(14.0, 2.3 * len(FAMILIES)), layout="constrained"
        )
        for row, (family, arms) in zip(axes, FAMILIES.items(), strict=True):
            color = ARCHITECTURES[family]
            lines: list[dict[str, Any]] = [
                {"color": color}, {"color": color, "linestyle": "--", "markerfacecolor": "white"},
                {"color": "0.45"}, {"color": "0.45", "linestyle": ":", "markerfacecolor": "white"},
            ]  # fmt: skip
            for ax, values in zip(row, (result["held_schmidt"], output(result["above_delta"])), strict=False):
                dots = {kind: values.sel(arm=arm).values for kind, arm in zip(KINDS, arms, strict=True)}
                group_dots(ax, dots, [line["color"] for line in lines])
            row[0].axvline(1, color="black", linestyle=":", linewidth=1)
            row[0].set_ylabel(family)
            row[1].tick_params(labelleft=False)
            for position in result["landmark_place"].values:
                row[1].axvline(position, color="0.6", linewidth=0.8, zorder=0)
            named = ["delta", "bump", "additive"]  # the labels of other kernels would overlap with these
            row[1].set_xticks(result["landmark_place"].sel(landmark=named).values, named)
            for ax, name in zip(row[2:], ALONG_STAGES, strict=True):
                for arm, kind, line in zip(arms, KINDS, lines, strict=True):
                    band(ax, result[name].sel(arm=arm).clip(min=0), kind, **line)
                ax.set_ylim(bottom=min(0.8, ax.get_ylim()[0]) if name == "factor_recovery_held" else 0)
        titles = ("Schmidt rank, held out", "kernel of the outputs", *ALONG_STAGES.values())
        for ax, name, title in zip(axes[0], "abcdef", titles, strict=True):
            letter(ax, name, title)
        axes[0, 3].legend(fontsize=7, loc="lower left", handlelength=3)
        for ax in axes[-1, 2:]:
            ax.set_xlabel("stage (0: code)")
    return figure


def theory_caption(result: xarray.Dataset) -> str:
    return (
        "Properties in Appendix A of networks without and with a remedy (stripes and 100 bumps; both penalties for the "
        f"low-rank decoder), trained on the whole grid, and untrained, {seed_count(result['held_schmidt'])}: (a) "
        "effective number of products of single-factor kernels in the kernel of held-out outputs (dotted: images of "
        "bumps; lines are medians), (b) position of the outputs' kernels between known kernels (grey lines), from the "
        "delta kernel (memorisation) to additive kernels, and (c–f) means and standard errors along the stages, in (c) "
        "and (d) at held-out points."
    )


def theory_table(result: xarray.Dataset) -> list[list[str]]:
    columns = {
        "Schmidt rank": result["held_schmidt"],
        "blocks, last hidden stage": best_split(result),
        "factors decoded, last hidden stage": last_hidden(result["factor_recovery_held"]),
        "sum of blocks, last hidden stage": last_hidden(result["additivity"]),
        "width of the hole, output": output(result["hole_openness"]),
    }
    arms = [arm for family in FAMILIES.values() for arm in family]
    return [
        ["mean", *columns],
        *([arm, *(cell(values.sel(arm=arm).mean()) for values in columns.values())] for arm in arms),
    ]


FIGURES = (FigureSpec("theory", "Appendix A in networks", ("theory",), theory_figure, theory_caption, theory_table),)
