"""Where inside the network factorization breaks, and whether depth helps.

Scores: `slope`: least-squares slope over stages (input = 0), averaged over depths; `effect`: of the statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.papers.forced_rendering.claims import FAILS, LEARNT
from recombine.papers.forced_rendering.labels import CODES
from recombine.reproduction.claims import EFFECT, Claim, Condition, Judgement
from recombine.reproduction.tables import all_depths, last_stage, listed_attribute, per_seed, stage_slope

if TYPE_CHECKING:
    import xarray

PROBES_DECAY = Claim(
    "C4",
    "Linear probes read the factors worse, the deeper the stage (Fig. 2a–b)",
    premises=(),
    conditions=(Condition("slope", "below", 0.0),),
)
FACTORIZATION_DECAYS = Claim(
    "C5",
    "Factorization decays with depth; shallow rate-coded networks drop sharper (Fig. 2c–d)",
    premises=(),
    conditions=EFFECT,
)
VOLUME_DISTORTED = Claim(
    "C6",
    "The volume element is distorted with depth, most in the held-out region (Fig. 2e–f)",
    premises=(),
    conditions=EFFECT,
)
EVERY_DEPTH_FAILS = Claim("C16", "CNNs of every depth fail to compose (Fig. 10–12)", premises=LEARNT, conditions=FAILS)
CLAIMS = (PROBES_DECAY, FACTORIZATION_DECAYS, VOLUME_DISTORTED, EVERY_DEPTH_FAILS)


def judge(result: xarray.Dataset) -> list[Judgement]:
    """Verdicts on probes, factorization and volume over the compared depths, and on every depth."""
    compared = result.sel(depth=listed_attribute(result, "compared"))
    return [_probes(compared), _factorization(compared), _volume(compared), _every_depth(result)]


def _probes(result: xarray.Dataset) -> Judgement:
    cases = {}
    for code in CODES:
        for probe, label in (("in_sample", "fitted and scored on the grid"), ("held_out", "scored on held-out points")):
            slope = all_depths(stage_slope(result[f"probe_{probe}"].sel(encoding=code)))
            cases[f"{code}, {label}"] = {"slope": per_seed(slope)}
    return PROBES_DECAY.judge(cases)


def _factorization(result: xarray.Dataset) -> Judgement:
    decay = -stage_slope(result["factorization"])
    cases = {f"{code}: decays": {"effect": per_seed(all_depths(decay.sel(encoding=code)))} for code in CODES}
    sharper = decay.sel(encoding="rate") - decay.sel(encoding="bump")
    shallow, deep = sharper.isel(depth=0), sharper.isel(depth=-1)
    names = [str(depth) for depth in result["depth"].values]
    cases[f"rate decays faster than bump at depth {names[0]}"] = {"effect": per_seed(shallow)}
    cases[f"and more so than at depth {names[-1]}"] = {"effect": per_seed(shallow - deep)}
    return FACTORIZATION_DECAYS.judge(cases)


def _volume(result: xarray.Dataset) -> Judgement:
    cases = {}
    for code in CODES:
        own = result.sel(encoding=code)
        cases[f"{code}: spread of log10 dv grows along stages"] = {
            "effect": per_seed(all_depths(stage_slope(own["spread"])))
        }
        excess = last_stage(own["deviation_held"]) - last_stage(own["deviation_kept"])
        cases[f"{code}: the outputs' log10 dv departs more in the held-out region"] = {
            "effect": per_seed(all_depths(excess))
        }
    return VOLUME_DISTORTED.judge(cases)


def _every_depth(result: xarray.Dataset) -> Judgement:
    names = EVERY_DEPTH_FAILS.scores
    cases = {}
    for code in CODES:
        for depth in result["depth"].values:
            scores = result.sel(encoding=code, depth=depth)
            if bool(scores[names[0]].notnull().any()):
                cases[f"{code}, depth {depth}"] = {name: per_seed(scores[name]) for name in names}
    return EVERY_DEPTH_FAILS.judge(cases)
