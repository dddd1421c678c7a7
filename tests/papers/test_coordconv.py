"""The networks and the task of Liu et al. 2018 are those of its text and code."""

import pytest
import torch
from torch.nn import functional

import recombine as rc
from recombine.papers.coordconv import ARMS, CLAIMS, PAPER
from recombine.papers.coordconv.decoders import Doubling, PixelDecoder
from recombine.reproduction.own_study import own_paper
from recombine.tasks import BumpsTask


@pytest.mark.parametrize(
    ("arm", "parameters", "held_out"), [("CoordConv, uniform", 7553, 784), ("deconvolution, quadrant", 1632001, 729)]
)
def test_networks_and_splits_have_the_published_sizes(arm, parameters, held_out):
    spec = ARMS[arm]
    assert sum(own.numel() for own in spec.module().parameters()) == parameters
    assert (int(spec.task.held_out.sum()), spec.task.grid.size) == (held_out, 56**2)


@pytest.mark.parametrize("arm", ARMS)
def test_targets_are_single_pixels_and_outputs_probabilities(arm):
    spec = ARMS[arm]
    inputs, targets = spec.task.examples(spec.task.grid.points[[0, 57, -1]])
    assert inputs.tolist() == [[4, 4], [5, 5], [59, 59]]
    assert torch.allclose(targets.sum((1, 2)), torch.ones(3))
    assert torch.allclose(targets[[0, 1, 2], [4, 5, 59], [4, 5, 59]], torch.ones(3))
    outputs = spec.module()(inputs)
    assert torch.allclose(outputs.flatten(1).sum(dim=1), torch.ones(3), atol=1e-4)
    assert bool((outputs >= 0).all())


@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_a_doubling_layer_is_the_transpose_of_a_strided_convolution_with_same_padding(kernel):
    layer = Doubling(3, 2, kernel).double()
    small, large = torch.randn(2, 3, 4, 4).double(), torch.randn(2, 2, 8, 8).double().requires_grad_()
    before, after = (kernel - 2) // 2, kernel - 2 - (kernel - 2) // 2
    strided = functional.conv2d(functional.pad(large, (before, after) * 2), layer.weight, stride=2)
    (transposed,) = torch.autograd.grad(strided, large, small)
    assert torch.allclose(layer(small), transposed)


SMALL = BumpsTask(size=8, factors=("x=8", "y=8"), fixed=("size=0.1",), encoding="rate:scale=unit", training="each")


def test_claims_are_judged_on_what_is_trained(tmp_path):
    """The networks at a size at which they learn within a second, with a smaller sample than a verdict needs."""
    recipe = ARMS["CoordConv, uniform"].recipe.replace(steps=100, lr=0.02)
    splits = {"uniform": "random:fraction=0.1", "quadrant": "x>5,y>5"}
    arms = {
        f"CoordConv, {split}": rc.RunSpec(task=SMALL.replace(holdout=holdout), decoder=PixelDecoder(), recipe=recipe)
        for split, holdout in splits.items()
    }
    paper = own_paper("coordconv", arms, CLAIMS[:1], seeds=2)
    results = rc.reproduce(
        paper.studies.values(), paper.presets["full"], tmp_path / "runs", tmp_path / "out", device="cpu", paper=paper
    )
    [judged] = rc.Findings(paper, results).judgements
    assert judged.described == "direction only"
    assert float(results.dataset("coordconv")["id_accuracy"].min()) > 0.9
    assert [claim.text for claim in PAPER.claims.values()] == [own.text for own in CLAIMS]
