"""Write figures, verdicts and a self-contained HTML page into a results folder."""

from __future__ import annotations

import base64
import io
import json
import os
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.manifest import Manifest, remove_temporaries, write_into
from recombine.panels import styled
from recombine.reproduction.claims import Judgement
from recombine.reproduction.figures import FigureSpec, Section
from recombine.reproduction.forks import in_forks
from recombine.reproduction.paper import Findings
from recombine.reproduction.report import Parts, policy, verdicts
from recombine.reproduction.results import DATA

PAGE, CLAIMS_FILE, FIGURES = "index.html", "claims.json", "figures"
LARGEST_PAGE = 15_000_000
"""Maximum size of the page in bytes; Datasets that do not fit are linked instead."""
METADATA: Mapping[str, Mapping[str, str | None]] = {
    "png": {"Software": "recombine"},
    "svg": {"Creator": "recombine", "Date": None},
}
"""Figure formats; without date and version of matplotlib, which would differ between equal figures."""
QUESTION = "question"  # name of the opening section of the page, which contains the explorer
MISSING = "This folder has no decoders to explore. 'recombine report DIR --store STORE' copies them from a store."


class DrawnFigure(NamedTuple):
    """A figure on the page."""

    spec: FigureSpec
    caption: str
    kind: str
    """Image format: `png` or `svg+xml`."""
    image: str
    """The base64-encoded image."""
    table: Sequence[Sequence[str]] = ()
    """Rows of the table below it, headings first."""


def write_report(
    findings: Findings, out: Path | None = None, begin: Callable[[str], None] = lambda step: None,
    panels: Mapping[str, Callable[[], Parts]] | None = None,
) -> Path:  # fmt: skip
    """Write figures, verdicts and the page into a folder, by default that of the results; return the page's path.

    `begin` is called with the name of each step. `panels` maps section names to functions that return interactive
    elements; the `question` panel is the explorer.
    """
    source, paper = findings.results.path, findings.paper
    out = source if out is None else out
    remove_temporaries(out)
    for study in findings.studies:
        findings.results.dataset(study)  # decoded here once, instead of in every process
    jobs: dict[str, Callable[[], Any]] = {f"building panel {name}": panel for name, panel in (panels or {}).items()}
    jobs["evaluating claims"] = lambda: findings.judgements
    jobs |= {f"drawing {name}": partial(_drawn, findings, spec) for name, spec in findings.figures.items()}
    done = dict(in_forks(jobs, len(os.sched_getaffinity(0)), begin))
    findings.judgements = done["evaluating claims"]
    images, figures = dict[str, bytes](), []
    for name, spec in findings.figures.items():
        contents, shown = done[f"drawing {name}"]
        images |= {f"{FIGURES}/{name}.{kind}": content for kind, content in contents.items()}
        figures.append(DrawnFigure(spec, **shown))
    written = partial(
        page, title=paper.title, source=paper.source, question=paper.question, preset=findings.preset,
        provenance=findings.results.provenance | findings.results.registration, judgements=findings.judgements,
        figures=figures, sections=paper.sections,
        panels={name: done[f"building panel {name}"] for name in panels or {}},
        missing=MISSING if paper.explorer else "", data_folder=Path(os.path.relpath(source / DATA, out)).as_posix(),
    )  # fmt: skip
    space = LARGEST_PAGE - 50_000 - len(written(downloads={}).encode())  # minus the markup around the Datasets
    html = written(downloads=_downloads(findings, space))
    judged = json.dumps([judgement.record() for judgement in findings.judgements], indent=1)
    Manifest(out).replace({**images, CLAIMS_FILE: judged.encode(), PAGE: html.encode()})
    return out / PAGE


def _drawn(findings: Findings, spec: FigureSpec) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return a figure's files by format, and what the page shows of it, without its spec, which cannot be pickled."""
    contents = rendered(findings.draw(spec))
    kind, image = _smallest(contents)
    shown = {"caption": findings.caption(spec), "table": findings.table(spec)}
    return contents, {**shown, "kind": kind, "image": base64.b64encode(image).decode()}


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as PNG and SVG, and close it."""
    write_into(folder, {f"{name}.{kind}": content for kind, content in rendered(figure).items()})


def rendered(figure: Figure, kinds: Collection[str] = tuple(METADATA)) -> dict[str, bytes]:
    """Return a figure as PNG and SVG, and close it."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)  # keep one layout for both files
    area, contents = figure.get_tightbbox().padded(0.1), {}  # inches
    with styled():  # sets a hash salt, without which SVG ids are random
        for kind in kinds:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, bbox_inches=area, metadata=METADATA[kind])
            contents[kind] = buffer.getvalue()
    pyplot.close(figure)
    return contents


def _smallest(contents: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return the smaller of the PNG (reduced to 256 colours) and the SVG, preceded by its format."""
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(contents["png"])).convert("RGB")
    image.quantize(method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(buffer, "png")
    return min(("png", buffer.getvalue()), ("svg+xml", contents["svg"]), key=lambda pair: len(pair[1]))


def _downloads(findings: Findings, space: int) -> dict[str, str | None]:
    """Return the figures' Datasets, compressed in base64, or None for the largest ones if they do not fit."""
    used = {study for spec in findings.figures.values() for study in spec.studies}
    contents = {study: findings.results.content(study) for study in findings.studies if study in used}
    texts = {study: base64.b64encode(zlib.compress(own, 9)).decode() for study, own in contents.items()}
    embedded = set()
    for study in sorted(texts, key=lambda name: len(texts[name])):
        space -= len(texts[study])
        embedded |= {study} if space >= 0 else set()
    return {study: text if study in embedded else None for study, text in texts.items()}


def page(
    *,
    judgements: Sequence[Judgement],
    figures: Sequence[DrawnFigure],
    sections: Sequence[Section] = (),
    panels: Mapping[str, Parts] | None = None,
    **about: Any,
) -> str:
    """Return the page as self-contained HTML.

    Empty sections are left out, and figures without a section come last. `about` contains the paper's title, source and
    question, the preset, the provenance, the `downloads` by study (None for a link), and the `missing` text, which is
    shown if there is no explorer.
    """
    environment = Environment(
        loader=PackageLoader("recombine.reproduction.report", "."), autoescape=True, undefined=StrictUndefined
    )
    for name in (
        "comparisons", "counted", "evidence", "interval_text", "network_count", "plain_text", "robustness", "sentence",
        "verdict_text",
    ):  # fmt: skip
        environment.filters[name] = getattr(verdicts, name)
    environment.tests |= {"has_directions": verdicts.has_directions, "compared": verdicts.comparisons}
    environment.filters["markup"] = Markup
    folder, panels = files("recombine.reproduction.report"), panels or {}
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
    )


def _filled(
    sections: Sequence[Section], judgements: Sequence[Judgement], figures: Sequence[DrawnFigure], live: Collection[str]
) -> list[dict[str, Any]]:
    """Return all non-empty sections except the opening one, with their figures and judgements."""
    drawn, judged = {own.spec.name: own for own in figures}, {own.claim: own for own in judgements}
    placed = {name for section in sections for name in section.figures}
    rest = Section("figures", "More figures" if sections else "Figures", "", tuple(n for n in drawn if n not in placed))
    filled = []
    for section in (*sections, rest):
        shown = [drawn[name] for name in section.figures if name in drawn]
        claims = [judged[name] for name in section.claims if name in judged]
        if section.name != QUESTION and (shown or claims or section.name in live):
            filled.append({"section": section, "figures": shown, "judgements": claims})
    return filled
