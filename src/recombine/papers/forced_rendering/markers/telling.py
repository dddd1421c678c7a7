"""What a diagnosis says about how telling its numbers have been, from the marker study's Dataset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import recombine.metrics  # noqa: F401  registers the stage metrics
from recombine.errors import InvalidValue
from recombine.files import write
from recombine.metrics.registry import STAGE_METRICS
from recombine.papers.forced_rendering.markers.labels import COMPOSING, FALL
from recombine.papers.forced_rendering.markers.ranking import Ranked, ranking
from recombine.papers.forced_rendering.markers.tables import never_shown, table_of
from recombine.reproduction.claims import Judgement
from recombine.reproduction.report.verdicts import sentence
from recombine.reproduction.results import Results

if TYPE_CHECKING:
    import xarray

STUDY = "markers"
OTHER_NAMES = {
    "spread": ("log_volume_std",),
    "id_error": ("id_error",),
    "memorised": ("superposition memorised",),
    "kernel_binary": ("kernel_agreement binary",),
}
"""Names that a marker has in a diagnosis, beside that of a registered column."""


ADVICE = {
    "C25": "render each pixel from code and coordinate, as a coordinate MLP does, which composed with no remedy",
    "C23": "train on images of single factors (stripes) too, which composed where combinations alone did not",
}
"""What to try, by the claim that it rests on."""


def write_telling(results: Results, judgements: Iterable[Judgement], path: Path) -> None:
    """Write the file that a diagnosis reads (`recombine.diagnosis.telling`).

    Parameters
    ----------
    results
        A folder with the marker study's Dataset.
    judgements
        Its verdicts, which the advice rests on.
    path
        The file.
    """
    if STUDY not in results.studies:
        raise InvalidValue("telling", str(path), f"nothing for a folder without the study {STUDY}")
    record = telling_record(results.dataset(STUDY), judgements)
    write(path, f"{json.dumps(record, indent=1, ensure_ascii=False)}\n".encode(), "telling")


def telling_record(networks: xarray.Dataset, judgements: Iterable[Judgement] = ()) -> dict[str, Any]:
    """AUROCs by the names that numbers have in a diagnosis, a sentence about the networks, and advice."""
    table = table_of(never_shown(networks))
    counts = Counter(str(name) for name in table.architecture)
    kinds = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    about = (
        f"{len(table.arm)} networks that learnt and never saw what is held out, in {len(set(table.arm))} conditions "
        f"({kinds}; preset {networks.attrs.get('preset', 'unknown')}), {int(table.composing.sum())} of which "
        f"compose (OOD accuracy of at least {100 * COMPOSING:.0f} %); scored on {', '.join(table.scored)}"
    )
    scored = [marker for marker in ranking(networks) if np.isfinite(marker.auroc.low)]
    numbers = {name: _score(own) for own in scored for name in names_of(own.name)}
    return {"networks": about, "numbers": numbers, "advice": advice(judgements)}


def advice(judgements: Iterable[Judgement]) -> list[str]:
    """What to try, as far as the claim that says so is supported, with its evidence."""
    supported = {own.claim: own for own in judgements if own.verdict == "supported"}
    return [f"{text}. {name}: {sentence(supported[name])}" for name, text in ADVICE.items() if name in supported]


def names_of(marker: str) -> list[str]:
    """What a marker is called in a diagnosis: columns of one number a stage, or of one a factor, whose mean it is."""
    columns = [
        column.name
        for column in STAGE_METRICS.columns()
        if column.study_name == marker and column.dims in ((), ("factor",))
    ]
    return [*columns, *OTHER_NAMES.get(marker, ())]


def _score(marker: Ranked) -> dict[str, Any]:
    low, high = (round(float(end), 4) for end in (marker.auroc.low, marker.auroc.high))
    return {
        "auroc": round(marker.auroc.value, 4), "low": low, "high": high, "higher": marker.higher,
        "position": marker.position, "fall": marker.position == FALL,
    }  # fmt: skip
