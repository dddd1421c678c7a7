"""The task and the networks of Wiedemer et al. 2023, and R² as a measure of studies of one's own."""

import pytest
import torch
from torch.nn import functional

import recombine as rc
from recombine.decoders import Interface
from recombine.papers.first_principles import ARMS, SUPPORTS, TASK, UpsamplingDecoder
from recombine.reproduction.own_study import OwnClaim, own_paper


@pytest.mark.parametrize(("arm", "distinct"), [("monolithic, orthogonal", 719), ("compositional, diagonal", 936)])
def test_supports_vary_one_sprite_or_both_alike(arm, distinct):
    task = ARMS[arm].task
    kept = task.grid.positions(torch.nonzero(~task.held_out).flatten())
    assert (len(kept), ARMS[arm].recipe.total_steps(100_000)) == (distinct, 9800)
    front, behind = kept[:, :5], kept[:, 5:]
    if "orthogonal" in arm:
        assert bool(((front == 0).all(dim=1) | (behind == 0).all(dim=1)).all())
    else:
        assert bool(((front - behind).abs() <= 1).all())


def test_the_front_sprite_comes_first():
    task = TASK.replace(holdout=SUPPORTS["random"])
    rows = task.grid.rows(torch.randint(task.grid.size, (20,), generator=torch.Generator().manual_seed(0)))
    images = task.images(rows)
    front = images.clone()
    front[:] = task.images(torch.cat([rows[:, :5], rows[:, :5]], dim=1))  # both sprites alike: the front one is seen
    inside = front.sum(dim=1) > front.sum(dim=1).amax(dim=(1, 2), keepdim=True) - 1e-6
    assert bool(inside.any(dim=(1, 2)).all())
    for image, own, mask in zip(images, front, inside, strict=True):
        assert torch.allclose(image[:, mask], own[:, mask], atol=1e-3)


def test_the_network_is_the_published_chain_of_layers():
    module = UpsamplingDecoder(width=6, channels=3).build(Interface((4,), (3, 16, 16)))
    inputs = torch.randn(5, 4)
    weights = [part for part in module.modules() if isinstance(part, torch.nn.Linear | torch.nn.Conv2d)]
    values = inputs
    for layer in weights[:3]:
        values = functional.elu(values @ layer.weight.mT + layer.bias)
    values = (values @ weights[3].weight.mT + weights[3].bias).reshape(5, 3, 4, 4)
    for layer in weights[4:]:
        values = functional.interpolate(functional.elu(values), scale_factor=2, mode="bilinear", align_corners=True)
        values = functional.conv2d(values, layer.weight, layer.bias, padding="same")
    assert len(weights) == 6
    assert torch.allclose(module(inputs), values, atol=1e-5)


def test_r2_is_a_measure(tmp_path):
    """One less the error over that of the mean image: an untrained network's is negative, a trained one's is not."""
    task = rc.BumpTask(size=6, holdout="random:fraction=0.2", training="each", encoding="onehot")
    arms = {
        f"{steps} steps": rc.RunSpec(task=task, decoder="mlp:width=32:depth=1", recipe=rc.Recipe(steps=steps, lr=0.01))
        for steps in (1, 400)
    }
    claim = OwnClaim(text="It explains kept images", measure="id_r2", arms="400 steps", above=0.9)
    paper = own_paper("explained", arms, [claim], seeds=2)
    results = rc.reproduce(
        paper.studies.values(), paper.presets["full"], tmp_path / "runs", tmp_path / "out", device="cpu", paper=paper
    )
    data = results.dataset("explained")
    images = task.images(task.grid.points)[~task.held_out].flatten(1)
    expected = 1 - data["id_mse"] / float((images - images.mean(dim=0)).square().mean())
    assert abs(data["id_r2"] - expected).max() < 1e-5
    assert (data["id_r2"].sel(arm="400 steps") > 0.9).all()
    assert (data["id_r2"].sel(arm="1 steps") < 0.5).all()
