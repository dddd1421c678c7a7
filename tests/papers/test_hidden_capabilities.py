"""The task and the networks of Park et al. 2024, and claims judged on what is trained."""

import pytest
import torch

import recombine as rc
from recombine.papers.hidden_capabilities import ARMS, CLAIMS, NETWORKS, PAPER, REMEDIES
from recombine.reproduction.own_study import OwnClaim, own_paper


def test_small_blue_discs_are_held_out():
    task = ARMS["denoiser, numbers"].task
    values = task.grid.points[task.held_out]
    assert (task.grid.size, len(values), task.image_shape) == (1024, 256, (3, 32, 32))
    assert values[:, 0].unique().tolist() == [240]
    assert values[:, 1].unique().tolist() == [6, 8, 10, 12]
    red, blue = task.images(torch.tensor([[0.0, 20, 15, 15], [240, 20, 15, 15]]))[:, :, 15, 15].tolist()
    assert red == pytest.approx([1, 0.25, 0.25])
    assert blue == pytest.approx([0.25, 0.25, 1], abs=1e-6)


def test_a_sample_is_right_if_its_colour_and_size_are():
    """Wherever it is: images of the grid are right, also noisy ones; those of another class and blank ones are not."""
    task = ARMS["denoiser, numbers"].task
    values = task.grid.points
    images = task.images(values).float()
    noisy = images + 0.1 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    classes = torch.stack([values[:, 0] > 120, values[:, 1] > 13], dim=1)
    for shift in (1, 17, 512):  # images of another place, size or colour
        same = (classes.roll(shift, dims=0) == classes).all(dim=1)
        assert torch.equal(task.is_right(images.roll(shift, dims=0), values), same)
    assert bool(task.is_right(noisy, values).all())
    assert not bool(task.is_right(torch.zeros_like(images), values).any())
    assert not bool(task.is_right(torch.full_like(images, torch.nan), values).any())


def test_only_a_single_coloured_sprite_has_classes():
    for fields in ({"sprites": 2}, {"factors": ("scale=4", "x=4")}, {"class_boundaries": "x=5"}):
        with pytest.raises(rc.InvalidValue, match="class_boundaries must be one boundary each of hue and scale"):
            rc.SpriteTask(**{"factors": ("scale=4", "hue=2", "x=4"), "class_boundaries": "scale=7", **fields})

    for wrong in ("hue=x", "hue=120,hue=130"):
        with pytest.raises(rc.InvalidValue, match="class_boundaries must be"):
            rc.SpriteTask(factors=("scale=4", "hue=2", "x=4"), class_boundaries=wrong)


def test_keys_of_runs_that_were_stored_before_stay():
    assert rc.RunSpec(task=rc.SpriteTask()).digest == "6e1f1634420839f8be81"
    assert rc.RunSpec(task=rc.BallsTask(), decoder="ladder").digest == "9f4e0daedfbf562c9f64"


def test_arms_differ_in_nothing_but_the_remedy():
    for network in NETWORKS:
        for remedy, control in REMEDIES.items():
            changed, plain = ARMS[f"{network}, {remedy}"], ARMS[f"{network}, {control}"]
            fields = changed.model_dump(mode="json"), plain.model_dump(mode="json")
            differing = {name for name in fields[0] if fields[0][name] != fields[1].get(name)}
            loss = {"penalties"} if remedy == "low-rank" else set()
            assert differing == ({"task"} if remedy == "isolated" else {"decoder", *loss})
    for name in (own.removeprefix("denoiser, ") for own in ARMS if own.startswith("denoiser")):
        denoiser, decoder = (ARMS[f"{network}, {name}"] for network in NETWORKS)
        count = [sum(part.numel() for part in spec.module().parameters()) for spec in (denoiser, decoder)]
        assert count[0] == count[1]
        assert denoiser.task == decoder.task


def test_claims_are_judged_on_what_is_trained(tmp_path):
    """The networks at a size at which they train within seconds, with a smaller sample than a verdict needs."""
    task = rc.SpriteTask(
        size=20, shapes=("disc",), factors=("hue=0..240..2", "x=6..13..3"), encoding="onehot", training="each",
        holdout="hue>120,x>8", class_boundaries="hue=120",
    )  # fmt: skip
    arms = {
        f"{name}, one-hot": rc.RunSpec(
            task=task, decoder=own.replace(width=8), recipe=rc.Recipe(steps=12, batch=20, lr=3e-3)
        )
        for name, own in NETWORKS.items()
    }
    [claim] = [own for own in CLAIMS if own.less == "decoder, one-hot" and isinstance(own, OwnClaim)][:1]
    paper = own_paper("toy", arms, [claim], seeds=2, figures=("ood_r2", "ood_accuracy", "id_accuracy"))
    results = rc.reproduce(
        paper.studies.values(), paper.presets["full"], tmp_path / "runs", tmp_path / "out", device="cpu", paper=paper
    )
    data = results.dataset("toy")
    assert set(data["ood_accuracy"].values.flatten()) <= {0.0, 1.0}
    assert bool((data["id_r2"] <= 1).all())
    assert len(rc.Findings(paper, results).judgements) == 1
    assert [own.text for own in PAPER.claims.values()] == [own.text for own in CLAIMS]
