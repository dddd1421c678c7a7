"""Whether every encoding fails to compose."""

from __future__ import annotations

from recombine.papers.forced_rendering.encodings.labels import BOX
from recombine.papers.forced_rendering.samples import sample
from recombine.reproduction.claims import Claim, Data, Statement
from recombine.reproduction.criteria import above, below
from recombine.reproduction.samples import Sample


def held_out_error(data: Data) -> dict[str, Sample]:
    """Per encoding, against the box."""
    return _by_encoding(data, "ood_over_blank")


def held_out_accuracy(data: Data) -> dict[str, Sample]:
    """Per encoding, against the box."""
    return _by_encoding(data, "ood_accuracy")


def _by_encoding(data: Data, score: str) -> dict[str, Sample]:
    boxed = data["encodings"].sel(holdout=BOX)
    return {str(code): _one(boxed.sel(encoding=code), score) for code in boxed["encoding"].values}


def _one(networks, score):  # type: ignore[no-untyped-def]
    return sample(networks[score], networks)


CLAIMS = (
    Claim(
        "C1",
        "Decoders fail to compose for every disentangled code",
        "§3.2, Fig. 1b–c",
        statements=(
            Statement(above("held-out error over blank", 0.5), held_out_error),
            Statement(below("held-out accuracy", 0.9), held_out_accuracy),
        ),
        studies=("encodings",),
    ),
)
