"""Verdicts on Datasets of the superposition study that were written down."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.papers.forced_rendering.samples import CONTROLS
from recombine.papers.forced_rendering.superposition import (
    CNN_ARM,
    CONTRASTS,
    DARK,
    FAMILIES,
    MLP_ARM,
    SIMILARITIES,
    SUPERPOSITION_COORDS,
)
from recombine.reproduction.claims import judge
from tests.judged import differing

SEEDS = 12
SUPERPOSING = {
    "matched": 0.8, "mismatched": 0.2, "truth": 0.1, "beyond_truth": 0.7, "own_matched": 0.8, "own_mismatched": 0.2,
    "memorised": 0.7, "memorised_null": 0.0, "averaged": 0.9, "averaged_null": 0.1, "kernel_or": 0.8,
    "kernel_product": 0.5, "kernel_radial": 0.4, "kernel_sum": 0.8, "kernel_p": 0.01, "block_contrast": 1.0,
    "several_peaks": 0.7, "away_aligned": 0.9, "away_chance": 0.4,
}  # fmt: skip


def networks(seed=0, *, id_over_blank=0.01, seeds=SEEDS, **changed):
    generator = np.random.default_rng(seed)
    values = {}
    for name, value in {**SUPERPOSING, **changed}.items():
        inner = {f"kernel_{family}": "similarity" for family in FAMILIES} | {"block_contrast": "blocks"}
        sizes = {"similarity": len(SIMILARITIES), "blocks": len(CONTRASTS)}
        dims = ("seed", *([inner[name]] if name in inner else []))
        values[name] = (dims, value + 0.01 * generator.normal(size=(seeds, *(sizes[dim] for dim in dims[1:]))))
    values["id_over_blank"] = ("seed", np.full(seeds, id_over_blank))
    values["id_accuracy"] = ("seed", np.ones(seeds))
    return xarray.Dataset(values, coords=SUPERPOSITION_COORDS).assign_coords(seed=range(seeds))


def superposition(bump, rate, more=None):
    parts = {("bump", CNN_ARM): bump, ("rate", CNN_ARM): rate, **(more or {})}
    placed = [own.expand_dims(encoding=[code], decoder=[decoder]) for (code, decoder), own in parts.items()]
    return xarray.combine_by_coords(placed, join="outer")


def judged(claim, **data):
    [found] = judge([DEFAULT.claims[claim]], data)
    return found


@pytest.mark.parametrize(("matched", "verdict"), [(0.8, "yes"), (0.3, "no"), (0.4, "open"), (-0.1, "reversed")])
def test_superposition(matched, verdict):
    both = [networks(seed, matched=matched) for seed in range(2)]
    assert judged("C2", superposition=superposition(*both)).described == verdict


def test_what_differs_from_superposition_is_named():
    bump = networks(beyond_truth=0.0, truth=0.7)
    more = {("bump", MLP_ARM): networks(seeds=8, matched=0.2)}
    found = judged("C2", superposition=superposition(bump, networks(1), more))
    others = {test.case: test.outcome for test in differing(found)}
    assert others == {
        "bump, beyond the truth": "no",
        "bump, less the truth": "no",
        f"bump, {MLP_ARM}": "no",
    }


def test_additive_outputs_of_untrained_networks_are_no_evidence():
    """An untrained network that superposes as well as failing ones makes every control fail."""
    arms = {name: networks(k) for k, name in enumerate([*CONTROLS, *(o for own in CONTROLS.values() for o in own)])}
    arms["stripes and 100 bumps"] = networks(20, matched=0.2)
    controls = xarray.concat(list(arms.values()), xarray.DataArray(list(arms), dims="arm", name="arm"))
    found = judged("C2", superposition=superposition(networks(), networks(1)), controls=controls)
    assert found.described == "yes"
    outcomes = {test.case: test.outcome for test in found.controls}
    assert outcomes.pop("less stripes and 100 bumps") == "yes"
    assert set(outcomes.values()) == {"no"}
    assert len(outcomes) == 5


# -- C3 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "yes"),
        ({"kernel_product": 0.79}, "no"),
        ({"kernel_radial": 0.79}, "no"),
        ({"kernel_radial": 0.99}, "reversed"),
        ({"kernel_p": 0.3}, "no"),
        ({"kernel_product": 0.75}, "open"),
    ],
    ids=str,
)
def test_the_binary_kernel_must_beat_both_rivals_and_shifted_ones(changed, verdict):
    assert judged("C3", superposition=superposition(networks(**changed), networks(1))).described == verdict


# -- C14 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "verdict"), [(0.5, "yes"), (0.95, "no"), (1.5, "reversed"), (0.9, "open")])
def test_blocks(rate, verdict):
    more = {(code, DARK): networks(k, seeds=8, block_contrast=1.0) for k, code in enumerate(("bump", "rate"))}
    found = judged("C14", superposition=superposition(networks(), networks(1, block_contrast=rate), more))
    assert found.described == verdict
    dark = [test for test in found.alternatives if test.case.endswith("dark bumps")]
    assert {test.outcome for test in dark} == {"no"}
    assert len(found.alternatives) == 2 * len(CONTRASTS) - 1


# -- C19 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "yes"),
        ({"several_peaks": 0.1}, "partly"),
        ({"several_peaks": 0.1, "away_aligned": 0.45}, "no"),
        ({"several_peaks": 0.25, "away_aligned": 0.6}, "open"),
        ({"id_over_blank": 0.5}, "not decidable"),
    ],
    ids=str,
)
def test_artefacts(changed, verdict):
    assert judged("C19", superposition=superposition(networks(**changed), networks(1))).described == verdict
