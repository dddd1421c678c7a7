"""Findings to a folder: figures, verdicts, and a page that opens from disk."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.manifest import remove_temporaries, write_into
from recombine.panels import styled
from recombine.reproduction.claims import Judgement
from recombine.reproduction.figures import Section
from recombine.reproduction.paper import Findings
from recombine.reproduction.report import Parts, policy, verdicts

PAGE, CLAIMS_FILE, FIGURES, DATA = "index.html", "claims.json", "figures", "data"
KINDS = ("png", "svg")
"""Of a figure's files: to look at, and to print."""
PADDING = 0.1
"""Inches around what is drawn."""
LARGEST_PAGE = 15_000_000
"""Bytes of the page, as far as data behind figures can be left out of it."""
MARGIN = 50_000
"""Of these bytes, those around the data."""
QUESTION = "question"
"""Name of the section that begins the page, with the explorer."""
MISSING = (
    "This folder keeps no decoders to explore: 'recombine report DIR --store STORE' takes them from the store "
    "of its runs."
)


@dataclass(frozen=True)
class DrawnFigure:
    """A figure as the page shows it."""

    name: str
    title: str
    caption: str
    kind: str
    """Of the image: `png` or `svg+xml`."""
    image: str
    """In base64."""
    studies: tuple[str, ...] = ()
    """Whose data it is drawn from."""


@dataclass(frozen=True)
class Download:
    """A study's Dataset behind the figures."""

    study: str
    path: str
    """From the page on."""
    content: str | None
    """netCDF-4, compressed by zlib, in base64; none where it is only a link."""


def write_report(
    findings: Findings, say: Callable[[str], None] = lambda line: None, panels: Mapping[str, Parts] | None = None
) -> Path:
    """Write figures, verdicts and the page into the results folder, saying each figure; the page's path.

    `panels` are live parts by the name of the section that they stand in; that of `question` is the explorer.
    """
    out, paper = findings.results.path, findings.paper
    remove_temporaries(out)
    figures = []
    for spec in findings.figures.values():
        kind, image = _smallest(save_figure(findings.draw(spec), out / FIGURES, spec.name))
        say(f"drew {spec.name}")
        text = base64.b64encode(image).decode()
        figures.append(DrawnFigure(spec.name, spec.title, findings.caption(spec), kind, text, spec.studies))
    written = partial(
        page, title=paper.title, source=paper.source, question=paper.question, preset=findings.preset,
        provenance=findings.results.provenance | findings.results.registration, judgements=findings.judgements,
        figures=figures, sections=paper.sections, panels=panels, missing=MISSING if paper.explorer else "",
    )  # fmt: skip
    space = LARGEST_PAGE - len(written().encode()) - MARGIN
    html = written(downloads=_downloads(findings, figures, space))
    judged = json.dumps([judgement.record() for judgement in findings.judgements], indent=1)
    write_into(out, {CLAIMS_FILE: judged.encode(), PAGE: html.encode()})
    return out / PAGE


def save_figure(figure: Figure, folder: Path, name: str) -> dict[str, bytes]:
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


def page(
    *,
    judgements: Sequence[Judgement],
    figures: Sequence[DrawnFigure],
    sections: Sequence[Section] = (),
    panels: Mapping[str, Parts] | None = None,
    downloads: Sequence[Download] = (),
    missing: str = "",
    **about: Any,
) -> str:
    """The page as HTML that opens from disk and needs no other file.

    Sections of which nothing is here are left out, and figures of none come last. `panels` are live parts by the name
    of the section that they stand in; that of `question` is the explorer, and `missing` says what to do without one.
    `about` has title, source and question of the paper, preset and provenance.
    """
    environment = Environment(
        loader=PackageLoader("recombine.reproduction.report", "."), autoescape=True, undefined=StrictUndefined
    )
    for name in ("interval_text", "network_count", "robustness", "sentence", "verdict_text", "evidence"):
        environment.filters[name] = getattr(verdicts, name)
    environment.filters["markup"] = Markup
    folder = files("recombine.reproduction.report")
    panels = panels or {}
    parts = list(panels.values())
    scripts = [*(part.script for part in parts), (folder / "page.js").read_text(encoding="utf-8")]
    styles = [*(part.style for part in parts), (folder / "page.css").read_text(encoding="utf-8")]
    return environment.get_template("page.html.j2").render(
        **about,
        policy=policy(scripts, styles, "data:", [name for part in parts for name in part.workers]),
        scripts=scripts,
        styles=styles,
        panels=panels,
        judgements=judgements,
        sections=_filled(sections, judgements, figures, panels),
        opening=next((section for section in sections if section.name == QUESTION), None),
        downloads=downloads,
        missing=missing,
    )


def _filled(
    sections: Sequence[Section], judgements: Sequence[Judgement], figures: Sequence[DrawnFigure], live: Collection[str]
) -> list[dict[str, Any]]:
    """The sections that have something to show, with what is here of them, without the first one."""
    drawn, judged = ({own.name: own for own in figures}, {own.claim: own for own in judgements})
    placed = {name for section in sections for name in section.figures}
    rest = Section("figures", "More figures" if sections else "Figures", "", tuple(n for n in drawn if n not in placed))
    filled = []
    for own in (*sections, rest):
        shown = [drawn[name] for name in own.figures if name in drawn]
        told = [judged[name] for name in own.claims if name in judged]
        if own.name != QUESTION and (shown or told or own.name in live):
            filled.append({"section": own, "figures": shown, "judgements": told})
    return filled
