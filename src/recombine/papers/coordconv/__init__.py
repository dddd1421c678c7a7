"""An Intriguing Failing of Convolutional Neural Networks and the CoordConv Solution (Liu et al.; NeurIPS 2018).

Its coordinate classification: light the pixel (x, y) of 64 × 64, where the centre of a 9 × 9 square fits (3136 places).
A quarter of the places is held out, at random (*uniform*) or one quadrant. The recipes are the paper's: Adam on the
softmax cross-entropy, for 50 epochs with 1 × 1 convolutions, and for 1000 epochs, with a rate that drops to a tenth
every 200, with transposed convolutions. Of the sweep of 324 settings for these, the largest network stands here, at
the smallest of its rates.
"""

from __future__ import annotations

from recombine.papers.coordconv.decoders import DeconvolutionDecoder, PixelDecoder
from recombine.reproduction.criteria import Learnt
from recombine.reproduction.own_study import OwnClaim, own_paper
from recombine.specs import Recipe, RunSpec
from recombine.tasks import BumpsTask

TASK = BumpsTask(
    size=64, factors=("x=4..59..56", "y=4..59..56"), fixed=("size=0.1",), encoding="rate", training="each"
)  # fmt: skip
"""A bump so narrow that it is one pixel."""
SPLITS = {"uniform": "random:fraction=0.25", "quadrant": "x>32,y>32"}
BASE = Recipe(batch=16, weight_decay=0, loss="cross_entropy")
NETWORKS = {
    "CoordConv": (PixelDecoder(), BASE.replace(epochs=50, lr=0.005)),
    "deconvolution": (
        DeconvolutionDecoder(), BASE.replace(epochs=1000, lr=0.001, lr_drops=(0.2, 0.4, 0.6, 0.8)),
    ),
}  # fmt: skip
ARMS = {
    f"{name}, {split}": RunSpec(task=TASK.replace(holdout=holdout), decoder=decoder, recipe=recipe)
    for name, (decoder, recipe) in NETWORKS.items()
    for split, holdout in SPLITS.items()
}
ACCURACY = "ood_accuracy"
CLAIMS = (
    OwnClaim(
        text="CoordConv classifies the coordinates of unseen places perfectly, on both splits",
        measure=ACCURACY, arms=("CoordConv, uniform", "CoordConv, quadrant"), above=0.99,
    ),
    OwnClaim(
        text="Deconvolution does not reach 90 % of unseen places even on the uniform split (at best 86 %)",
        measure=ACCURACY, arms="deconvolution, uniform", below=0.9,
    ),
)  # fmt: skip

PAPER = own_paper(
    "coordconv", ARMS, CLAIMS, seeds=56, first_seed=1000,
    learnt=Learnt(largest_error=10),  # a classifier need not be certain to be right, so accuracy alone counts
    figures=(ACCURACY, "id_accuracy"),
    question="Can convolutions turn a coordinate into a pixel?",
    title="An intriguing failing of convolutional neural networks and the CoordConv solution",
    source="NeurIPS 2018",
)  # fmt: skip
