"""Remedy A: do penalties on rendered embeddings make a network compose? (§4.1, Fig. 3, 6; claims C7, C8, C9)

The low-rank decoder on one-hot codes with a corner held out, four arms: no penalty, entropy, variance, both. The same
four with the published scripts' convention (variance of the raw vectors) for a few seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from recombine.claims import CLAIMS, Judgement
from recombine.decoders import LowRank
from recombine.decoders.low_rank import LowRankEmbedding
from recombine.metrics import band_index, matrix_effective_rank
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import (
    STAGE_DIMS,
    base_attributes,
    grid_variables,
    keep_first,
    log_ratio,
    per_seed,
    stage_profile,
    tabulate,
)
from recombine.tasks import BumpTask

if TYPE_CHECKING:
    import xarray

NONE, ENTROPY, VARIANCE, BOTH = ARMS = ("none", "entropy", "variance", "both")
ENTROPY_WEIGHT, VARIANCE_WEIGHT = 0.1, 0.01
"""μ1 and μ2 of the authors."""
UNIT, RAW = "unit vectors", "raw vectors"


def penalised_spec(preset: Preset, arm: str, vectors: str = "unit") -> RunSpec:
    """One arm of the ablation, in the authors' settings at the preset's size."""
    return RunSpec(
        task=BumpTask(
            size=preset.penalty_size, sigma=preset.penalty_sigma, encoding="onehot", holdout="corner", training="each"
        ),
        decoder=LowRank(vectors=vectors),
        recipe=preset.recipe(
            epochs=preset.penalty_epochs,
            lr=preset.penalty_lr,
            weight_decay=1e-4,
            precision="float32",  # two channels: nothing that matrix units could speed up
            entropy=ENTROPY_WEIGHT if arm in (ENTROPY, BOTH) else 0.0,
            variance=VARIANCE_WEIGHT if arm in (VARIANCE, BOTH) else 0.0,
        ),
    )


@register
class PenaltyStudy(Study):
    """The ablation of the two penalties."""

    name: ClassVar[str] = "penalties"
    question: ClassVar[str] = "Do penalties on rendered embeddings make a network compose?"
    claims: ClassVar[tuple[str, ...]] = ("C7", "C8", "C9")

    def arms(self, preset: Preset) -> list[Arm]:
        arms = [Arm((arm, UNIT), penalised_spec(preset, arm)) for arm in ARMS]
        return arms + [
            Arm((arm, RAW), penalised_spec(preset, arm, "raw"), extra=True) for arm in ARMS if arm in (VARIANCE, BOTH)
        ]

    def measure(self, trials: Trials) -> xarray.Dataset:
        pictured = trials.pictured

        def measured(run: Run) -> dict[str, Any]:
            found: dict[str, Any] = {**run.scores, **_embeddings(run, run.key in pictured)}
            return found | stage_profile(run, trials.device, probes=False)

        inner = {**STAGE_DIMS, "embedding": ("factor", "value", "row", "column")}
        result = keep_first(tabulate(trials, ("arm", "vectors"), measured, inner), "log_volume", "embedding")
        result = result.drop_vars("mean_embedding").assign(embedding=drawn_only(result["embedding"]))
        spec = trials[NONE, UNIT][0].spec
        return result.assign(**grid_variables(spec)).assign_coords(factor=["x", "y"]).assign_attrs(
            {**base_attributes(trials), "size": trials.preset.penalty_size, "sigma": trials.preset.penalty_sigma}
        )  # fmt: skip

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        unit = result.sel(vectors=UNIT)
        none, both = unit.sel(arm=NONE), unit.sel(arm=BOTH)
        embeddings = {
            "both: lower effective rank than none": {"effect": per_seed(none["rank"] - both["rank"])},
            "both: higher band index than none": {"effect": per_seed(both["band"] - none["band"])},
        }
        smoother = {"effect": per_seed(none["spread"].mean("stage") - both["spread"].mean("stage"))}
        return [
            CLAIMS["C7"].judge(embeddings),
            CLAIMS["C8"].judge({"both: spread of log10 dv below none's, mean over stages": smoother}),
            CLAIMS["C9"].judge(dict(_ablation(unit))),
        ]


def drawn_only(embedding: xarray.DataArray) -> xarray.DataArray:
    """The images of the arms that figures show; those of all would be most of the Dataset."""
    return embedding.where(embedding["arm"].isin([NONE, BOTH]) & (embedding["vectors"] == UNIT))


def _ablation(result: xarray.Dataset) -> list[tuple[str, dict[str, list[float]]]]:
    """Every pairwise statement of the claim; effects are log10 of the larger error over the smaller one."""
    statements = [("id", other, NONE, f"ID: none below {other}") for other in (ENTROPY, VARIANCE, BOTH)]
    statements += [("ood", NONE, other, f"OOD: {other} below none") for other in (ENTROPY, VARIANCE, BOTH)]
    statements += [
        ("ood", ENTROPY, VARIANCE, "OOD: variance below entropy (entropy gains little)"),
        ("id", VARIANCE, BOTH, "ID: both below variance"),
        ("ood", ENTROPY, BOTH, "OOD: both below entropy"),
        ("ood", VARIANCE, BOTH, "OOD: both below variance"),
    ]
    return [
        (text, {"effect": log_ratio(_mse(result, region, above), _mse(result, region, below))})
        for region, above, below, text in statements
    ]


def _mse(result: xarray.Dataset, region: str, arm: str) -> xarray.DataArray:
    return result[f"{region}_mse"].sel(arm=arm)


def _embeddings(run: Run, pictured: bool) -> dict[str, Any]:
    """Rank and banding of all embeddings; the images themselves of a run that pictures are of."""
    embedding = run.module().stages["embedding"]
    assert isinstance(embedding, LowRankEmbedding)
    with torch.no_grad():
        images = torch.stack(embedding.images())
    found: dict[str, Any] = {
        "rank": matrix_effective_rank(images).mean().item(),
        "band": band_index(images).nanmean().item(),
    }
    if pictured:
        found["embedding"] = images.numpy()
    return found
