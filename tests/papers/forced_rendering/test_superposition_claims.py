"""Verdicts on Datasets of the superposition study that were written down."""

import numpy as np
import pytest
import xarray

from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.papers.forced_rendering.samples import CONTROLS, STRIPED, UNTRAINED
from recombine.papers.forced_rendering.superposition import (
    CNN_ARM,
    CONTRASTS,
    DARK,
    MLP_ARM,
    OWN_MAXIMUM,
    PEAKS,
    SIMILARITIES,
    SUPERPOSITION_COORDS,
    SUPERPOSITION_DIMS,
    TRUE_HEIGHT,
    near,
    peaks,
)
from recombine.reproduction.claims import judge
from tests.judged import differing

SEEDS = 12
SUPERPOSING = {
    "matched": 0.8, "mismatched": 0.2, "truth": 0.1, "beyond_truth": 0.7, "own_matched": 0.8, "own_mismatched": 0.2,
    "memorised": 0.7, "memorised_null": 0.0, "averaged": 0.9, "averaged_null": 0.1, "kernel_or": 0.8,
    "kernel_product": 0.5, "kernel_radial": 0.4, "kernel_sum": 0.6, "kernel_p": 0.01, "block_contrast": 1.0,
    "several_peaks": 0.7, "away_aligned": 0.9, "away_chance": 0.4,
}  # fmt: skip


def networks(seed=0, *, id_over_blank=0.01, seeds=SEEDS, **changed):
    """Networks with these values, at all labels of a variable or, given a mapping, at some."""
    generator = np.random.default_rng(seed)
    sizes = {dim: len(labels) for dim, labels in SUPERPOSITION_COORDS.items()}
    values = {}
    for name in SUPERPOSING:
        dims = ("seed", *SUPERPOSITION_DIMS.get(name, ()))
        own = np.broadcast_to(SUPERPOSING[name], [sizes[dim] for dim in dims[1:]]).copy()
        changes = changed.get(name, {})
        if not isinstance(changes, dict):
            own[...] = changes
        else:
            for label, value in changes.items():
                own[SUPERPOSITION_COORDS[dims[1]].index(label)] = value
        values[name] = (dims, own + 0.01 * generator.normal(size=(seeds, *own.shape)))
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


def arms(failing=None, **others):
    """The control study: all arms alike, but for what is changed in failing CNNs and in arms by their names."""
    names = [*CONTROLS, *(arm for own in CONTROLS.values() for arm in own)]
    changes = {"failing": failing or {}, **others}
    own = [networks(k, **changes.get(name, {})) for k, name in enumerate(names)]
    return xarray.concat(own, xarray.DataArray(names, dims="arm", name="arm"))


BOTH = superposition(networks(), networks(1))


def test_superposition_in_failing_and_composing_networks_is_described_and_not_specific():
    """An untrained network that superposes as well as failing ones makes every control fail."""
    found = judged("C2", superposition=BOTH, controls=arms())
    assert found.headline == "described, not specific"
    found = judged("C2", superposition=BOTH, controls=arms(**{STRIPED: {"matched": 0.2}}))
    assert found.headline == "described, specific"
    assert {test.case for test in found.tests} == {"bump", "rate", f"less {STRIPED}"}
    assert {test.outcome for test in found.controls} == {"no"}
    assert len(found.controls) == 5


# -- C3 --------------------------------------------------------------------------------------------------------------

AMONG_HELD_OUT = near("cosine")


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "yes"),
        ({"kernel_product": 0.79}, "no"),
        ({"kernel_radial": 0.79}, "no"),
        ({"kernel_radial": 0.99}, "no"),
        ({"kernel_p": 0.3}, "no"),
        ({"kernel_product": 0.75}, "open"),
        ({"kernel_sum": {"cosine": 0.8}}, "yes"),  # over kept outputs, it is the same kernel
        ({"kernel_sum": {AMONG_HELD_OUT: 0.8}}, "no"),
        ({"kernel_sum": {AMONG_HELD_OUT: 0.9}}, "no"),
        ({"kernel_sum": {AMONG_HELD_OUT: 0.75}}, "open"),
        ({"kernel_product": {AMONG_HELD_OUT: 0.9}}, "yes"),  # an alternative
    ],
    ids=str,
)
def test_the_binary_kernel_must_beat_all_rivals_and_shifted_ones(changed, verdict):
    assert judged("C3", superposition=superposition(networks(**changed), networks(1))).described == verdict


def test_rivals_among_held_out_outputs_are_alternatives():
    changed = {"kernel_product": {AMONG_HELD_OUT: 0.9}, "kernel_sum": {near("L2 distance"): 0.9}}
    found = judged("C3", superposition=superposition(networks(**changed), networks(1)))
    assert {test.case for test in differing(found)} == {
        "bump, less all rivals, held-out outputs", "bump, less the sum kernel, held-out outputs, L2 distance"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("untrained", "verdict"), [(0.6, "yes"), (0.8, "no"), (0.97, "reversed")], ids=["lower", "as high", "higher"]
)
def test_a_kernel_that_untrained_networks_have_is_not_learnt(untrained, verdict):
    found = judged("C3", superposition=BOTH, controls=arms(**{UNTRAINED: {"kernel_or": untrained}}))
    assert (found.described, found.specific) == ("yes", verdict)
    assert {test.outcome for test in found.controls} == {"no"}
    assert f"less {STRIPED}" in {test.case for test in found.controls}


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

JUDGED, BY_TRUTH = peaks(0.3, OWN_MAXIMUM), peaks(0.25, TRUE_HEIGHT)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "yes"),
        ({"several_peaks": {JUDGED: 0.1}}, "partly"),
        ({"several_peaks": {label: 0.1 for label in PEAKS if label != JUDGED}}, "yes"),
        ({"several_peaks": 0.1, "away_aligned": 0.45}, "no"),
        ({"away_aligned": {BY_TRUTH: 0.45}}, "partly"),
        ({"several_peaks": 0.25, "away_aligned": 0.6}, "open"),
        ({"id_over_blank": 0.5}, "not decidable"),
    ],
    ids=str,
)
def test_artefacts(changed, verdict):
    assert judged("C19", superposition=superposition(networks(**changed), networks(1))).described == verdict


def test_other_thresholds_are_alternatives():
    found = judged("C19", superposition=superposition(networks(several_peaks={BY_TRUTH: 0.1}), networks(1)))
    own = [test for test in found.alternatives if "separate peaks" in test.statistic and "peaks above" in test.case]
    assert len(own) == len(PEAKS) - 1
    assert [test.case for test in own if test.outcome == "no"] == ["bump, peaks above 0.25 of the true bump's height"]


@pytest.mark.parametrize(("composing", "verdict"), [(0.0, "yes"), (0.7, "no"), (0.45, "open")])
def test_peaks_are_specific_if_composing_networks_have_fewer(composing, verdict):
    found = judged("C19", superposition=BOTH, controls=arms(**{STRIPED: {"several_peaks": {JUDGED: composing}}}))
    assert (found.described, found.specific) == ("yes", verdict)


@pytest.mark.parametrize("name", ["C2", "C3", "C19"])
def test_what_an_earlier_version_did_not_measure_is_left_out(name):
    """Peaks had one threshold, kernels no near outputs, and there was no control study."""
    old = BOTH.drop_sel(similarity=[label for label in SIMILARITIES if "held-out" in label]).isel(peaks=0, drop=True)
    found = judged(name, superposition=old)
    assert found.described == ("yes" if name == "C2" else "not measured")
    assert found.specific == "not measured"
    if name == "C19":
        assert {test.outcome for test in found.tests} == {"not measured"}
