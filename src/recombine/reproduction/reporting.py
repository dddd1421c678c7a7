"""Findings to a folder: figures, verdicts, and a page that opens from disk."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

from recombine.digests import remove_temporaries, write_into
from recombine.reproduction.findings import Findings
from recombine.reproduction.report.drawing import save_figure
from recombine.reproduction.report.page import DrawnFigure, page

PAGE, CLAIMS_FILE, FIGURES = "index.html", "claims.json", "figures"


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
    out, paper = findings.results.path, findings.paper
    remove_temporaries(out)
    html = page(
        title=paper.title,
        source=paper.source,
        question=paper.question,
        preset=findings.preset,
        provenance=findings.results.provenance,
        judgements=findings.judgements,
        figures=_drawn(findings, out / FIGURES, say),
    )
    verdicts = json.dumps([judgement.record() for judgement in findings.judgements], indent=1)
    write_into(out, {CLAIMS_FILE: verdicts.encode(), PAGE: html.encode()})
    return out / PAGE


def _drawn(findings: Findings, folder: Path, say: Callable[[str], None]) -> list[DrawnFigure]:
    """Every figure, drawn into a folder."""
    figures = []
    for spec in findings.figures.values():
        contents = save_figure(spec, findings.datasets(spec), folder)
        say(f"drew {spec.name}")
        image = base64.b64encode(contents["png"]).decode()
        figures.append(DrawnFigure(spec.name, spec.title, findings.caption(spec), image))
    return figures
