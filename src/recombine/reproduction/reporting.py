"""Findings to a folder: figures, verdicts, and a page that opens from disk."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recombine.manifest import remove_temporaries, write_into
from recombine.reproduction.findings import Findings
from recombine.reproduction.report.downloads import Download, downloads
from recombine.reproduction.report.drawing import save_figure
from recombine.reproduction.report.page import DrawnFigure, page
from recombine.reproduction.report.parts import Parts

PAGE, CLAIMS_FILE, FIGURES, DATA = "index.html", "claims.json", "figures", "data"
LARGEST_PAGE = 15_000_000
"""Bytes of the page, as far as data behind figures can be left out of it."""
MISSING = (
    "This folder keeps no decoders to explore: 'recombine report DIR --store STORE' takes them from the store "
    "of its runs."
)


def write_report(
    findings: Findings, say: Callable[[str], None] = lambda line: None, panels: Mapping[str, Parts] | None = None
) -> Path:
    """Write figures, verdicts and the page into the results folder.

    Parameters
    ----------
    findings
        A paper's claims and figures on the folder's Datasets.
    say
        Called with a line of text for every figure.
    panels
        By the name of a section, something live that stands in it; that of `question` is the explorer.

    Returns
    -------
    Path
        The page.
    """
    out, paper = findings.results.path, findings.paper
    remove_temporaries(out)
    figures = _drawn(findings, out / FIGURES, say)
    settings: dict[str, Any] = {
        "title": paper.title,
        "source": paper.source,
        "question": paper.question,
        "preset": findings.preset,
        "provenance": findings.results.provenance,
        "judgements": findings.judgements,
        "figures": figures,
        "sections": paper.sections,
        "panels": panels,
        "missing": MISSING if paper.explorer else "",
    }
    html = page(**settings, downloads=_data(findings, figures, LARGEST_PAGE - len(page(**settings).encode())))
    verdicts = json.dumps([judgement.record() for judgement in findings.judgements], indent=1)
    write_into(out, {CLAIMS_FILE: verdicts.encode(), PAGE: html.encode()})
    return out / PAGE


def _drawn(findings: Findings, folder: Path, say: Callable[[str], None]) -> list[DrawnFigure]:
    """Every figure, drawn into a folder."""
    figures = []
    for spec in findings.figures.values():
        contents = save_figure(spec, findings.datasets(spec), folder)
        say(f"drew {spec.name}")
        kind, image = smallest(contents)
        text = base64.b64encode(image).decode()
        figures.append(DrawnFigure(spec.name, spec.title, findings.caption(spec), kind, text, spec.studies))
    return figures


def smallest(contents: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Of a figure's files, the one that is smaller in a page, and its kind; a PNG has at most 256 colours there."""
    from PIL import Image

    kinds = {"svg+xml": contents["svg"]} if "svg" in contents else {}
    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(contents["png"])).convert("RGB")
    image.quantize(method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(buffer, "png")
    kinds["png"] = buffer.getvalue()
    return min(kinds.items(), key=lambda pair: len(pair[1]))


def _data(findings: Findings, figures: Sequence[DrawnFigure], space: int) -> list[Download]:
    """The Datasets behind the figures."""
    used = {study for figure in figures for study in figure.studies}
    studies = [study for study in findings.studies if study in used]
    paths = {study: f"{DATA}/{study}.nc" for study in studies}
    contents = {study: findings.results.content(study) for study in studies}
    return downloads(paths, contents, {study: findings.results.dataset(study) for study in studies}, space - _MARGIN)


_MARGIN = 50_000
"""Characters around downloads."""
