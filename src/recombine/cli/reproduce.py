"""`recombine reproduce`: train a preset, measure it, judge the claims, write the report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from recombine.cli.flags import parse_seeds
from recombine.cli.progress import TrainingBar
from recombine.cli.tables import console
from recombine.errors import InvalidValue, listed
from recombine.store.files import explained
from recombine.studies import PRESETS, chosen
from recombine.sweep import train as train_specs


def reproduce(
    study: str = "all",
    /,
    *,
    preset: str = "quick",
    seeds: list[str] | None = None,
    device: str = "auto",
    store: Path | None = None,
    out: Annotated[Path, Parameter(help="Folder for datasets, figures and the page.")] = Path("report"),
) -> None:
    """Re-run the paper's claims; write a report. What is trained already is served from the store.

    Parameters
    ----------
    study
        Which question: all, or a study's name.
    preset
        quick (small, for two CPU cores) or paper (the paper's settings, for a GPU).
    seeds
        How many, a range or a list; by default as many as the preset asks for.
    device
        auto, cpu or cuda.
    store
        Directory of runs. Default: $RECOMBINE_STORE or ./runs.
    """
    if preset not in PRESETS:
        raise InvalidValue("preset", preset, listed(PRESETS))
    studies = chosen(study)
    wanted = {s.name: s.specs(preset, parse_seeds(seeds or [str(s.seeds[preset])])) for s in studies}
    with explained(out, "out"):
        out.mkdir(parents=True, exist_ok=True)
    specs = list({spec.digest: spec for listed_specs in wanted.values() for spec in listed_specs}.values())
    with TrainingBar() as bar:
        runs = {run.key: run for run in train_specs(specs, store, device=device, watch=bar)}

    from recombine.report import write_report

    results, judgements = {}, []
    for s in studies:
        result = s.measure([runs[spec.digest] for spec in wanted[s.name]])
        with explained(out, "out"):
            result.to_netcdf(out / f".{s.name}.nc", engine="h5netcdf")
            os.replace(out / f".{s.name}.nc", out / f"{s.name}.nc")
        results[s.name] = result
        judgements += s.judge(result)
    first = runs[specs[0].digest]
    settings = {
        "preset": preset,
        "first spec": first.spec_text,
        **{name: value for name, value in first.result["provenance"].items() if name not in ("started", "finished")},
    }
    titles = {s.name: s.question for s in studies}
    page = write_report(out, preset, results, titles, judgements, settings, len(runs))

    table = Table("claim", "verdict", "case by case")
    for judgement in judgements:
        cases = ", ".join(f"{case.name} {case.outcome}" for case in judgement.cases)
        table.add_row(judgement.claim, judgement.verdict, cases)
    printer = console()
    printer.print(table)
    printer.print(f"report: {page}", highlight=False, soft_wrap=True)
