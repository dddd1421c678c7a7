"""Whether every encoding fails to compose.

Beside the box stand other hold-outs, its interior, distances from the kept region, and other decoders with bump codes.
"""

from __future__ import annotations

from itertools import product

from recombine.papers.forced_rendering.attention import ARCHITECTURES, BASE
from recombine.papers.forced_rendering.encodings import BOX
from recombine.papers.forced_rendering.mlp import MLP_ARM
from recombine.papers.forced_rendering.samples import measured, sample, some_distances, trained
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, below

FAILING_ERROR = 0.5
"""Over that of a blank image."""
COMPOSING_ACCURACY = 0.9


def _by_encoding(data: Data, score: str) -> dict[str, Sample]:
    boxed = data["encodings"].sel(holdout=BOX)
    return {str(code): measured(boxed.sel(encoding=code), score) for code in boxed["encoding"].values}


def _beside(data: Data, score: str) -> dict[str, Sample]:
    result = data["encodings"]
    boxed, samples = result.sel(holdout=BOX), {}
    for code in boxed["encoding"].values:
        samples[f"{code}, interior"] = measured(boxed.sel(encoding=code), f"interior_{score}")
    bump = boxed.sel(encoding="bump")
    for distance in some_distances(bump[f"distance_{score}"]):
        values = bump[f"distance_{score}"].sel(distance=distance)
        samples[f"bump, {distance} px from the kept region"] = sample(values, bump)
    for holdout in (str(name) for name in result["holdout"].values if name != BOX):
        for code in result["encoding"].values:
            networks = result.sel(holdout=holdout, encoding=code)
            if trained(networks).any():
                samples[f"{code}, {holdout}"] = measured(networks, f"ood_{score}")
    return {**samples, **_other_decoders(data, f"ood_{score}")}


def _other_decoders(data: Data, score: str) -> dict[str, Sample]:
    """MLPs of every depth, and with bump codes transformer and coordinate MLP; against the box."""
    samples = {}
    if "mlp" in data:
        own = data["mlp"].sel(decoder=MLP_ARM)
        for code, depth in product(own["encoding"].values, own["depth"].values):
            networks = own.sel(encoding=code, depth=depth)
            if trained(networks).any():
                samples[f"{code}, MLP of depth {depth}"] = measured(networks, score)
    if "attention" in data:
        for decoder in ARCHITECTURES:
            samples[f"bump, {decoder}"] = measured(data["attention"].sel(decoder=decoder, variant=BASE), score)
    return samples


CLAIMS = (
    Claim(
        "C1",
        "Decoders fail to compose for every disentangled code",
        "§3.2, Fig. 1b–c",
        statements=(
            Statement(
                above("held-out error over blank", FAILING_ERROR),
                lambda data: _by_encoding(data, "ood_over_blank"),
                lambda data: _beside(data, "over_blank"),
            ),
            Statement(
                below("held-out accuracy", COMPOSING_ACCURACY),
                lambda data: _by_encoding(data, "ood_accuracy"),
                lambda data: _beside(data, "accuracy"),
            ),
        ),
        studies=("encodings",),
        beside=("mlp", "attention"),
    ),
)
