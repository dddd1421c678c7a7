"""Results to a page that opens from disk, without a network."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from recombine.claims import FEWEST_SEEDS, Judgement
from recombine.digests import remove_temporaries, write_into
from recombine.figures import FIGURES
from recombine.report.drawing import save_figure
from recombine.report.verdicts import shown_case

if TYPE_CHECKING:
    import xarray

PAGE, CLAIMS_FILE = "index.html", "claims.json"
INDICATIVE = 8
"""With fewer seeds than this an interval is little more than the range of the values, and the page says so."""


def write_report(
    out: Path,
    results: Mapping[str, xarray.Dataset],
    questions: Mapping[str, str],
    judgements: Sequence[Judgement],
    provenance: Mapping[str, Any],
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write figures, verdicts and the page into a folder; return the page's path."""
    remove_temporaries(out)
    figures = []
    for spec in FIGURES.values():
        if all(name in results for name in spec.studies):
            datasets = [results[name] for name in spec.studies]
            drawn = save_figure(spec, datasets, out / "figures")
            say(f"drew {spec.name}")
            figures.append({
                "name": spec.name,
                "title": spec.title,
                "caption": spec.caption(*datasets),
                "questions": [questions[name] for name in spec.studies],
                "image": base64.b64encode(drawn["png"]).decode(),
            })  # fmt: skip
    environment = Environment(loader=PackageLoader("recombine.report", "."), autoescape=True, undefined=StrictUndefined)
    environment.filters["shown_case"] = shown_case
    preset = dict(provenance.get("preset", {}))
    page = environment.get_template("page.html.j2").render(
        preset=preset.get("name", "unnamed"),
        settings={name: value for name, value in preset.items() if name != "name"},
        facts={name: value for name, value in provenance.items() if name != "preset" and value is not None},
        seeds=preset.get("seeds", 0),
        few=0 < preset.get("seeds", 0) < INDICATIVE,
        fewest=FEWEST_SEEDS,
        runs=provenance.get("runs", 0),
        judgements=judgements,
        figures=figures,
    )
    verdicts = json.dumps([judgement.record() for judgement in judgements], indent=1)
    write_into(out, {CLAIMS_FILE: verdicts.encode(), PAGE: page.encode()})
    return out / PAGE
