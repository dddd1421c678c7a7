"""Whether decoders that render each pixel from code and coordinate compose without a remedy."""

from __future__ import annotations

from recombine.papers.forced_rendering.attention import ARCHITECTURES, BASE
from recombine.papers.forced_rendering.encodings_claims import COMPOSING_ACCURACY, FAILING_ERROR
from recombine.papers.forced_rendering.samples import measured, trained
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, below


def _by_decoder(data: Data, score: str) -> dict[str, Sample]:
    base = data["attention"].sel(variant=BASE)
    return {decoder: measured(base.sel(decoder=decoder), score) for decoder in ARCHITECTURES}


def _variants(data: Data, score: str) -> dict[str, Sample]:
    result, samples = data["attention"], {}
    for decoder in ARCHITECTURES:
        for variant in (str(name) for name in result["variant"].values if name != BASE):
            networks = result.sel(decoder=decoder, variant=variant)
            if trained(networks).any():
                samples[f"{decoder}, {variant}"] = measured(networks, score)
    return samples


CLAIMS = (
    Claim(
        "C25",
        "Decoders that render each pixel from code and coordinate compose with no remedy at all",
        "E.3",
        statements=(
            Statement(
                above("held-out accuracy", COMPOSING_ACCURACY),
                lambda data: _by_decoder(data, "ood_accuracy"),
                lambda data: _variants(data, "ood_accuracy"),
            ),
            Statement(
                below("held-out error over blank", FAILING_ERROR),
                lambda data: _by_decoder(data, "ood_over_blank"),
                lambda data: _variants(data, "ood_over_blank"),
            ),
        ),
        studies=("attention",),
        ours=True,
    ),
)
