"""Compositional Generalization from First Principles (Wiedemer, Mayilvahanan, Bethge, Brendel; NeurIPS 2023).

Two sprites of five factors each, rendered by a monolithic network or by one network per sprite, of which the front one
occludes the other. In training the sprites vary one at a time (*orthogonal* support), together (*diagonal*) or freely
(*random*). What is measured is the published variance-weighted R² on combinations outside the support.

Networks, loss and recipe are the published ones at a fortieth of the length (50 epochs of 100 000 samples instead of
2000), so that claims are about ranks. Sprites are drawn by this package, anti-aliased and on a grid of 360 values each,
while those of the paper are continuous; and of its three planes of orthogonal support there are two, through the first
values.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from recombine.decoders import DECODERS, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.cnn import Resize
from recombine.decoders.per_factor import OcclusionDecoder
from recombine.reproduction.criteria import Learnt
from recombine.reproduction.own_study import OwnClaim, own_paper
from recombine.specs import Recipe, RunSpec
from recombine.tasks import SpriteTask

LAYERS = 4
SEED_SIDE = 4
"""Side of the first image, which is doubled until it is as large as the task's."""


@DECODERS.register
class UpsamplingDecoder(DecoderSpec):
    """Linear layers to a 4 × 4 image, which is doubled by bilinear upsampling between convolutions."""

    kind: Literal["upsampling"] = "upsampling"
    width: Annotated[int, Field(ge=1, le=2**16)] = 256
    """Number of neurons in every linear layer."""
    channels: Annotated[int, Field(ge=1, le=2**16)] = 32
    """Channels of every convolution."""

    def build(self, interface: Interface) -> StagedDecoder:
        stages: dict[str, nn.Module] = {}
        size = interface.code_size
        for number in range(LAYERS - 1):
            stages[f"linear{number}"] = nn.Sequential(nn.Linear(size, self.width), nn.ELU())
            size = self.width
        seed = nn.Linear(size, self.channels * SEED_SIDE**2), nn.Unflatten(1, (self.channels, SEED_SIDE, SEED_SIDE))
        stages["seed"] = nn.Sequential(*seed, nn.ELU())
        doublings = max(1, (-(-max(interface.plane) // SEED_SIDE) - 1).bit_length())
        for number in range(1, doublings):
            stages[f"layer{number}"] = nn.Sequential(*self._doubled(self.channels), nn.ELU())
        stages["output"] = nn.Sequential(*self._doubled(interface.channels), Resize(interface.image_shape))
        return StagedDecoder(stages)

    def _doubled(self, outputs: int) -> tuple[nn.Module, ...]:
        upsampled = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        return upsampled, nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(self.channels, outputs, 2)


FACTORS = {"x": "7..56..5", "y": "13..51..4", "shape": "3", "scale": "6..14..2", "hue": "18..342..3"}
TASK = SpriteTask(
    size=64, sprites=2, shapes=("triangle", "square", "disc"), blocks=(5, 5), encoding="rate:scale=unit",
    factors=tuple(f"{name}{suffix}={values}" for suffix in ("2", "") for name, values in FACTORS.items()),
    training="draws:100000",
)  # fmt: skip
"""The second sprite is in front, so that its factors come first."""
SUPPORTS = {
    "orthogonal": "orthogonal:base=0:blocks=5,5", "diagonal": "diagonal:1:blocks=5,5", "random": "random:fraction=0.1",
}  # fmt: skip
NETWORKS = {
    "monolithic": UpsamplingDecoder(width=320, channels=64),
    "compositional": OcclusionDecoder(base=UpsamplingDecoder()),
}
RECIPE = Recipe(epochs=50, batch=512, lr=1e-3, lr_end=0.01, weight_decay=1e-5)
ARMS = {
    f"{network}, {support}": RunSpec(task=TASK.replace(holdout=holdout), decoder=decoder, recipe=RECIPE)
    for support, holdout in SUPPORTS.items()
    for network, decoder in NETWORKS.items()
}
R2 = "ood_r2"
CLAIMS = (
    OwnClaim(
        text="On orthogonal support a composed network generalises, a monolithic one does not (0.951 and −0.50)",
        measure=R2, arms="compositional, orthogonal", less="monolithic, orthogonal", effect=0.3,
    ),
    OwnClaim(
        text="On orthogonal support the monolithic network is no better than the mean image",
        measure=R2, arms="monolithic, orthogonal", below=0.1,
    ),
    OwnClaim(
        text="On random support both generalise (0.931 and 0.958)",
        measure=R2, arms=("monolithic, random", "compositional, random"), above=0.8,
    ),
    OwnClaim(
        text="Compositional structure does not suffice: on diagonal support the composed networks are worse",
        measure=R2, arms="compositional, orthogonal", less="compositional, diagonal", effect=0.1,
    ),
)  # fmt: skip

PAPER = own_paper(
    "first_principles", ARMS, CLAIMS, seeds=16, first_seed=1000, learnt=Learnt(smallest_accuracy=-1.0),
    figures=(R2, "id_r2"),
    question="Does a composed network generalise where its parts were seen one at a time?",
    title="Compositional generalization from first principles", source="NeurIPS 2023",
)  # fmt: skip
