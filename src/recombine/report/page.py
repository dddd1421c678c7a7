"""Results to a page that opens from disk, without a network."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import pyplot

from recombine.claims import CONFIDENCE, Judgement
from recombine.figures import CAPTIONS, FIGURES
from recombine.store.files import write

if TYPE_CHECKING:
    import xarray


def write_report(
    out: Path,
    preset: str,
    results: Mapping[str, xarray.Dataset],
    titles: Mapping[str, str],
    judgements: Sequence[Judgement],
    settings: Mapping[str, Any],
    runs: int,
) -> Path:
    """Write figures, verdicts and the page into a folder; return the page's path."""
    figures = [_figure(out, name, titles[name], result) for name, result in results.items()]
    write(out / "claims.json", json.dumps([judgement.record() for judgement in judgements], indent=1).encode(), "out")
    environment = Environment(loader=PackageLoader("recombine.report", "."), autoescape=True, undefined=StrictUndefined)
    page = environment.get_template("page.html.j2").render(
        preset=preset,
        runs=runs,
        seeds=max(result.sizes["seed"] for result in results.values()),
        judgements=judgements,
        figures=figures,
        settings=settings,
        confidence=CONFIDENCE,
    )
    path = out / "index.html"
    write(path, page.encode(), "out")
    return path


def _figure(out: Path, name: str, title: str, result: xarray.Dataset) -> dict[str, str]:
    """Draw a study's figure, keep it as PNG and SVG, and return what the page needs."""
    figure = FIGURES[name](result)
    drawn = {}
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind)
        drawn[kind] = buffer.getvalue()
        write(out / f"{name}.{kind}", drawn[kind], "out")
    pyplot.close(figure)
    return {
        "title": title,
        "caption": CAPTIONS[name](result),
        "image": base64.b64encode(drawn["png"]).decode(),
    }
