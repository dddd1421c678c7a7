"""Findings to a page that opens from disk, without a network."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from recombine.digests import remove_temporaries, write_into
from recombine.reproduction.findings import Findings
from recombine.reproduction.report.drawing import save_figure
from recombine.reproduction.report.verdicts import case_text

PAGE, CLAIMS_FILE = "index.html", "claims.json"
INDICATIVE = 8
"""With fewer seeds than this an interval is little more than the range of the values, and the page says so."""


def write_report(findings: Findings, say: Callable[[str], None] = lambda line: None) -> Path:
    """Write figures, verdicts and the page into the results folder.

    Parameters
    ----------
    findings
        A paper's claims and figures on the folder's Datasets.
    say
        Called with a line of text for every figure.

    Returns
    -------
    Path
        The page.
    """
    out = findings.results.path
    remove_temporaries(out)
    figures = _figures(findings, out / "figures", say)
    verdicts = json.dumps([judgement.record() for judgement in findings.judgements], indent=1)
    write_into(out, {CLAIMS_FILE: verdicts.encode(), PAGE: _page(findings, figures).encode()})
    return out / PAGE


def _figures(findings: Findings, folder: Path, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Draw every figure into a folder; what the page shows of each."""
    figures = []
    for spec in findings.figures.values():
        contents = save_figure(spec, findings.datasets(spec), folder)
        say(f"drew {spec.name}")
        figures.append({
            "name": spec.name,
            "title": spec.title,
            "caption": findings.caption(spec),
            "image": base64.b64encode(contents["png"]).decode(),
        })  # fmt: skip
    return figures


def _page(findings: Findings, figures: list[dict[str, Any]]) -> str:
    """The page as HTML."""
    environment = Environment(
        loader=PackageLoader("recombine.reproduction.report", "."), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["case_text"] = case_text
    provenance, preset = findings.results.provenance, findings.preset
    seeds = preset.get("seeds", 0)
    return environment.get_template("page.html.j2").render(
        paper=findings.paper,
        preset=preset.get("name", "unnamed"),
        settings={name: value for name, value in preset.items() if name != "name"},
        facts={name: value for name, value in provenance.items() if name != "preset" and value is not None},
        seeds=seeds,
        indicative=0 < seeds < INDICATIVE,
        runs=provenance.get("runs", 0),
        judgements=findings.judgements,
        figures=figures,
    )
