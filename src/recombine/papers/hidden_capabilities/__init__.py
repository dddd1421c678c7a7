"""Emergence of Hidden Capabilities: Exploring Learning Dynamics in Concept Space (Park et al.; NeurIPS 2024).

A diffusion model is given the colour and size of a disc. It is trained on large red, small red and large blue ones; the
small blue ones are held out. The recipe is the one in the authors' repository: AdamW at a rate of 0.001 with a weight
decay of 0.01, and 20 000 steps with batches of 64 images of 32 × 32 pixels. The model here is smaller (16, 32 and 64
channels instead of 64, 128 and 256, one block instead of two at every size, no attention), has a fixed noise schedule,
and samples without noise in 16 steps.

Sizes of a class vary, and lie a quarter of the distance of the classes apart, as published; hues do not, and the
background is black. Places are random and unknown to the published models: here they are two more factors, so that
every code has one image. A sample is right if its colour (red or blue) and its size (small or large) are. The paper
decides this by a classifier of both that is trained on images; here the colour is the mean one of the bright pixels and
the size the root of their number.

Ours are two questions. Is failure the decoder's? Beside every denoiser stands the same U-Net trained without noise. Do
remedies carry over? Both are given isolated images, or maps of the code beside the noise which are drawn by one network
(*rendered*), by one for each factor (*additive*, *multilinear*), or by low-rank embeddings.
"""

from __future__ import annotations

from recombine.decoders import AdditiveDecoder, Denoiser, LadderDecoder, LowRank, MultilinearDecoder, UNet
from recombine.reproduction.own_study import OwnClaim, own_paper
from recombine.specs import Recipe, RunSpec
from recombine.tasks import SpriteTask

STEPS = 20_000
PLACES = "9..23..8"


def task(encoding: str) -> SpriteTask:
    """Return the task with red and blue discs, of which the small blue ones are held out."""
    return SpriteTask(
        size=32, shapes=("disc",), factors=("hue=0..240..2", "scale=6..20..8", f"x={PLACES}", f"y={PLACES}"),
        encoding=encoding, holdout="hue>120,scale<13", training="each", class_boundaries=("hue=120", "scale=13"),
    )  # fmt: skip


NUMBERS, ONE_HOT = "rate:scale=unit", "onehot"
RECIPE = Recipe(steps=STEPS, batch=64, lr=1e-3, weight_decay=0.01, precision="bf16")
NETWORKS = {"denoiser": Denoiser(width=16), "decoder": UNet(width=16)}
RENDERER = LadderDecoder(width=16, depth=1, start="seed", coordinates=False)
RENDERERS = {
    "rendered": RENDERER,
    "additive": AdditiveDecoder(base=RENDERER),
    "multilinear": MultilinearDecoder(base=RENDERER),
    "low-rank": LowRank(channels=16, depth=1),
}
REMEDIES = {"isolated": "one-hot", **dict.fromkeys(("additive", "multilinear", "low-rank"), "rendered")}
"""Remedies, with the arm that differs in nothing else."""


def arms_of(network: str) -> dict[str, RunSpec]:
    """Return the arms of a network: numbers, one-hot codes, and remedies with these."""
    decoder = NETWORKS[network]
    plain = RunSpec(task=task(ONE_HOT), decoder=decoder, recipe=RECIPE)
    arms = {
        "numbers": plain.replace(task=task(NUMBERS)),
        "one-hot": plain,
        "whole grid": plain.replace(task=plain.task.replace(region="whole")),
        "isolated": plain.with_remedy("isolated"),
        **{name: plain.replace(decoder=decoder.replace(renderer=own)) for name, own in RENDERERS.items()},
    }
    arms["low-rank"] = arms["low-rank"].replace(penalties=arms["rendered"].with_remedy("low_rank").penalties)
    return {f"{network}, {name}": spec for name, spec in arms.items()}


ARMS = {**arms_of("denoiser"), **arms_of("decoder")}
R2, ACCURACY = "ood_r2", "ood_accuracy"
CLAIMS = (
    OwnClaim(
        text="Diffusion models learn to draw the held-out combination (colour and size right in 80 % of samples, where "
        "the paper calls it learnt)",
        measure=ACCURACY, arms="denoiser, numbers", above=0.8,
    ),
    *(
        OwnClaim(
            text=f"A denoiser composes as well as the same network without noise ({code})",
            measure=R2, arms=f"denoiser, {code}", less=f"decoder, {code}", between=(-0.1, 0.1),
        )
        for code in ("numbers", "one-hot")
    ),
    *(
        OwnClaim(
            text=f"A {network} composes better with this remedy: {remedy}",
            measure=R2, arms=f"{network}, {remedy}", less=f"{network}, {control}", effect=0.1,
        )
        for remedy, control in REMEDIES.items()
        for network in NETWORKS
    ),
)  # fmt: skip

PAPER = own_paper(
    "hidden_capabilities", ARMS, CLAIMS, seeds=16, first_seed=1000,
    figures=(R2, ACCURACY, "id_r2", "id_accuracy"),
    question="Is compositional failure the decoder's, and do remedies carry over to denoisers?",
    title="Emergence of hidden capabilities: exploring learning dynamics in concept space", source="NeurIPS 2024",
)  # fmt: skip
