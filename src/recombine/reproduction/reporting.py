"""Findings to a folder: figures, verdicts, and a page that opens from disk."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.manifest import remove_temporaries, write_into
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.findings import Findings
from recombine.reproduction.panels import styled
from recombine.reproduction.report.page import Download, DrawnFigure, page
from recombine.reproduction.report.parts import Parts

if TYPE_CHECKING:
    import xarray

PAGE, CLAIMS_FILE, FIGURES, DATA = "index.html", "claims.json", "figures", "data"
KINDS = ("png", "svg")
"""Of a figure's files: to look at, and to print."""
PADDING = 0.1
"""Inches around what is drawn."""
LARGEST_PAGE = 15_000_000
"""Bytes of the page, as far as data behind figures can be left out of it."""
MARGIN = 50_000
"""Of these bytes, those around the data."""
MISSING = (
    "This folder keeps no decoders to explore: 'recombine report DIR --store STORE' takes them from the store "
    "of its runs."
)


def write_report(
    findings: Findings, say: Callable[[str], None] = lambda line: None, panels: Mapping[str, Parts] | None = None
) -> Path:
    """Write figures, verdicts and the page into the results folder, saying each figure; the page's path.

    `panels` are live parts by the name of the section that they stand in; that of `question` is the explorer.
    """
    out, paper = findings.results.path, findings.paper
    remove_temporaries(out)
    figures = _drawn(findings, out / FIGURES, say)
    settings: dict[str, Any] = {
        "title": paper.title,
        "source": paper.source,
        "question": paper.question,
        "preset": findings.preset,
        "provenance": findings.results.provenance | findings.results.registration,
        "judgements": findings.judgements,
        "figures": figures,
        "sections": paper.sections,
        "panels": panels,
        "missing": MISSING if paper.explorer else "",
    }
    space = LARGEST_PAGE - len(page(**settings).encode()) - MARGIN
    html = page(**settings, downloads=_downloads(findings, figures, space))
    verdicts = json.dumps([judgement.record() for judgement in findings.judgements], indent=1)
    write_into(out, {CLAIMS_FILE: verdicts.encode(), PAGE: html.encode()})
    return out / PAGE


def save_figure(spec: FigureSpec, datasets: list[xarray.Dataset], folder: Path) -> dict[str, bytes]:
    """Draw a figure, write it in every kind, and return the files' contents."""
    return save_drawn(spec.draw(*datasets), folder, spec.name)


def save_drawn(figure: Figure, folder: Path, name: str) -> dict[str, bytes]:
    """Write a figure in every kind, close it, and return the files' contents."""
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # laid out and measured once, not again for every kind of file
    area = figure.get_tightbbox().padded(PADDING)
    contents = {}
    for kind in KINDS:
        buffer = io.BytesIO()
        with styled():  # names inside an SVG are random otherwise
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(buffer, format=kind, bbox_inches=area, metadata=metadata)
        contents[kind] = buffer.getvalue()
    pyplot.close(figure)
    write_into(folder, {f"{name}.{kind}": content for kind, content in contents.items()})
    return contents


def _drawn(findings: Findings, folder: Path, say: Callable[[str], None]) -> list[DrawnFigure]:
    """Every figure, drawn into a folder."""
    figures = []
    for spec in findings.figures.values():
        contents = save_figure(spec, findings.datasets(spec), folder)
        say(f"drew {spec.name}")
        kind, image = _smallest(contents)
        text = base64.b64encode(image).decode()
        figures.append(DrawnFigure(spec.name, spec.title, findings.caption(spec), kind, text, spec.studies))
    return figures


def _smallest(contents: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Of a figure's files, the one that is smaller in a page, and its kind; a PNG has at most 256 colours there."""
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(contents["png"])).convert("RGB")
    image.quantize(method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(buffer, "png")
    kinds = {"png": buffer.getvalue(), **({"svg+xml": contents["svg"]} if "svg" in contents else {})}
    return min(kinds.items(), key=lambda pair: len(pair[1]))


def _downloads(findings: Findings, figures: Sequence[DrawnFigure], space: int) -> list[Download]:
    """The Datasets behind the figures: in the page as far as there is space, the smallest first, else as links."""
    used = {study for figure in figures for study in figure.studies}
    studies = [study for study in findings.studies if study in used]
    contents = {name: findings.results.content(name) for name in studies}
    texts = {name: base64.b64encode(zlib.compress(own, 9)).decode() for name, own in contents.items()}
    fitting = set()
    for study in sorted(texts, key=lambda name: len(texts[name])):
        space -= len(texts[study])
        if space >= 0:
            fitting.add(study)
    return [Download(name, f"{DATA}/{name}.nc", texts[name] if name in fitting else None) for name in studies]
