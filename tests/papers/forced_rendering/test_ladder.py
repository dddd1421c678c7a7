"""Steps from a CNN to a pixel-wise decoder: the decoders, and verdicts on planted accuracies."""

import numpy as np
import pytest
import torch
import xarray
from matplotlib import pyplot
from torch import nn

from recombine.decoders.ladder import LadderDecoder, Repeat, Unshared
from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering.ladder import (
    BROADCAST,
    CLAIMS,
    CNN_ARM,
    CODES,
    FIGURES,
    HOLDOUTS,
    PIXELWISE,
    PLACED,
    RUNGS,
    SEED,
    STEPS,
    STUDY,
)
from tests.papers.forced_rendering.planted_remedies import LEARNT, SEEDS, noise, verdict_of

(C37,) = CLAIMS


@pytest.mark.parametrize("kernel", [1, 3])
def test_unshared_weights_are_those_of_each_pixel(kernel):
    torch.manual_seed(0)
    own, images = Unshared(2, 3, kernel, (4, 5)), torch.randn(6, 2, 4, 5)
    padded = nn.functional.pad(images, 4 * (kernel // 2,))
    outputs = own(images)
    for row in range(4):
        for column in range(5):
            patch = padded[:, :, row : row + kernel, column : column + kernel].flatten(1)
            expected = patch @ own.weight[5 * row + column] + own.bias[:, row, column]
            assert torch.allclose(outputs[:, :, row, column], expected, atol=1e-6)


def test_unshared_weights_that_are_equal_make_a_convolution():
    torch.manual_seed(0)
    plain, own = nn.Conv2d(2, 3, 3, padding=1), Unshared(2, 3, 3, (4, 5))
    own.weight.data[:] = plain.weight.flatten(1).mT
    own.bias.data[:] = plain.bias[:, None, None]
    images = torch.randn(6, 2, 4, 5)
    assert torch.allclose(own(images), plain(images), atol=1e-6)


@pytest.mark.parametrize("side", [1, 7])
@pytest.mark.parametrize("plane", [(7, 7), (14, 28), (10, 9)])
def test_pixels_are_repeated(plane, side):
    seed = torch.randn(2, 3, side, side)
    rows, columns = ([row * side // size for row in range(size)] for size in plane)
    assert torch.equal(Repeat(plane)(seed), seed[:, :, rows][..., columns])


def test_neighbouring_rungs_differ_in_one_thing():
    preset = PAPER.preset_named("paper")
    decoders = {arm.labels[2]: arm.spec.decoder for arm in STUDY.arms(preset)}
    assert list(decoders) == list(RUNGS)
    for more, less in STEPS.values():
        if CNN_ARM not in (more, less):
            own, other = decoders[more].model_dump(), decoders[less].model_dump()
            assert sum(own[name] != other[name] for name in own) == 1
    assert isinstance(decoders[SEED], LadderDecoder)


def ladder(*, learnt=SEEDS, **accuracies):
    """The study's Dataset with these accuracies; the rungs that are left out have that of the CNN."""
    names = {name.replace("_", " "): value for name, value in accuracies.items()}
    fit = {name: np.where(np.arange(SEEDS) < learnt, value, 0.0) for name, value in LEARNT.items() if "id_a" in name}
    fit["id_over_blank"] = np.full(SEEDS, LEARNT["id_over_blank"])
    dims, shape = ("code", "holdout", "rung", "seed"), (len(CODES), len(HOLDOUTS), len(RUNGS), SEEDS)
    table = np.zeros(shape)
    for place, holdout in enumerate(HOLDOUTS):
        for k, rung in enumerate(RUNGS):
            value = names.get(f"{rung} {holdout}", names.get(rung, names[CNN_ARM]))
            table[:, place, k] = value + noise(k)
    variables = {
        "ood_accuracy": (dims, table),
        **{name: (dims, np.broadcast_to(own, shape)) for name, own in fit.items()},
    }
    coords = {"code": list(CODES), "holdout": list(HOLDOUTS), "rung": list(RUNGS), "seed": np.arange(SEEDS)}
    return {"ladder": xarray.Dataset(variables, coords)}


ABOVE = {"broadcast_code": 1.0, "1×1_kernels": 1.0, "coordinate_MLP": 1.0}


@pytest.mark.parametrize(
    ("accuracies", "described", "specific"),
    [
        ({"CNN": 0.4, **ABOVE}, "yes", "yes"),
        ({"CNN": 0.4}, "no", "no"),  # no step at all
        ({"CNN": 0.1, SEED: 0.1, PLACED: 0.5, **ABOVE}, "yes", "open"),  # coordinates gain nearly as much
        ({"CNN": 0.1, "full_size": 0.9, "coordinates": 0.9, **ABOVE}, "open", "reversed"),
        ({"CNN": 0.4, **ABOVE, "broadcast_code_corner": 0.4}, "partly", "partly"),
    ],
)  # fmt: skip
def test_a_planted_step_is_found(accuracies, described, specific):
    found = verdict_of(C37, ladder(**accuracies))
    assert (found.described, found.specific) == (described, specific)


def test_networks_that_did_not_learn_decide_nothing():
    found = verdict_of(C37, ladder(CNN=0.4, **ABOVE, learnt=6))
    assert (found.described, found.specific) == ("not decidable", "not decidable")


def test_shuffled_rungs_give_no_verdict():
    data = ladder(CNN=0.4, **ABOVE)["ladder"]
    generator = np.random.default_rng(0)
    shuffled = generator.permuted(data["ood_accuracy"].values, axis=2)
    found = verdict_of(C37, {"ladder": data.assign(ood_accuracy=(data["ood_accuracy"].dims, shuffled))})
    assert "yes" not in {test.outcome for test in found.tests}


def test_the_picture_shows_every_rung():
    data = ladder(CNN=0.4, **ABOVE)["ladder"]
    [figure] = FIGURES
    axes = figure.draw(data).axes
    assert [ax.get_title(loc="left") for ax in axes] == [f"{code}, {h}" for code in CODES for h in HOLDOUTS]
    assert ["broadcast code", *["+0.60"] * 4] in figure.table(data)
    assert {BROADCAST, PIXELWISE} <= {label.get_text() for label in axes[0].get_yticklabels()}
    pyplot.close("all")
