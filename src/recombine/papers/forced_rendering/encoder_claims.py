"""Whether the other direction, from image to code, fails in the same region."""

from __future__ import annotations

from recombine.papers.forced_rendering.presets import CODES
from recombine.papers.forced_rendering.samples import decades, sample, some_distances
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect


def error_ratio_alternatives(data: Data) -> dict[str, Sample]:
    """In the interior, by distance from the kept region, and by a linear read-out of the last hidden stage."""
    samples = {}
    for code in CODES:
        networks = data["encoder"].sel(encoding=code)
        samples[f"{code}, interior"] = _decades(data, code, "interior_mse", "id_mse")
        read_out = _decades(data, code, "readout_held", "readout_kept")
        samples[f"{code}, linear read-out of the last hidden stage"] = read_out
        for distance in some_distances(networks["distance_mse"]):
            far = networks["distance_mse"].sel(distance=distance)
            name = f"{code}, {distance} px from the kept region"
            samples[name] = sample(decades(far, networks["id_mse"]), networks)
    return samples


def _decades(data: Data, code: str, above: str, below: str) -> Sample:
    networks = data["encoder"].sel(encoding=code)
    return sample(decades(networks[above], networks[below]), networks)


CLAIMS = (
    Claim(
        "C26",
        "The reverse direction, from image to code, fails in the same region",
        "SPEC §4",
        statements=(
            Statement(
                effect("error in the hold-out over that outside, decades", 1.0),
                lambda data: {code: _decades(data, code, "ood_mse", "id_mse") for code in CODES},
                error_ratio_alternatives,
            ),
        ),
        studies=("encoder",),
        ours=True,
    ),
)
