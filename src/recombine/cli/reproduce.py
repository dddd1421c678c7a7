"""`recombine reproduce`, `figure`, `claims` and `report`: train a preset, measure it, judge the claims, draw, write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from recombine.claims import Judgement
from recombine.cli.progress import TrainingBar
from recombine.cli.tables import console
from recombine.errors import InvalidValue, listed
from recombine.files import explained
from recombine.files import write as write_file
from recombine.report.markdown import escaped
from recombine.report.verdicts import (
    claim_by_claim,
    headline,
    markdown_table,
    marked_blocks,
    provenance_table,
    shown_case,
    tally,
    with_blocks,
)
from recombine.results import Results
from recombine.studies import STUDIES, Study, preset_named

COLORS = {"supported": "green", "partly supported": "yellow", "not supported": "red", "undecided": "yellow"}


def reproduce(
    *what: str,
    preset: str = "quick",
    seeds: int | None = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    device: str = "auto",
    members: int | None = None,
    processes: int | None = None,
    store: Path | None = None,
    out: Path = Path("report"),
) -> None:
    """Re-run the paper's figures and claims; write a report. What is trained already is served from the store.

    Parameters
    ----------
    what
        Any of: all, fig1 … fig15 (or 1 … 15), C1 … C18, a study's or an extra figure's name. Default: all.
    preset
        quick (small, for two CPU cores) or paper (the paper's settings, for a GPU).
    seeds
        Seeds where a claim is judged; by default as many as the preset asks for.
    changes
        A field of the preset, as NAME=VALUE; may be given several times.
    device
        auto, cpu or cuda.
    members
        Most networks in one program on a GPU.
    processes
        Training processes of one thread each, on a CPU. Default: one a core.
    store
        Directory of runs. Default: $RECOMBINE_STORE or ./runs.
    out
        Folder for datasets, figures and the page.
    """
    wanted = [*(changes or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    size = preset_named(preset).changed(wanted)
    studies = selected(what or ("all",))
    if processes is not None and processes < 1:
        raise InvalidValue("processes", processes, "at least 1")

    from recombine.reproduction import reproduce as run

    printer = console()
    with TrainingBar() as bar:
        results = run(
            studies, size, store, out, device=device, members=members,
            processes=processes or available_cores(), watch=bar, say=bar.say,
        )  # fmt: skip
        page = written(results, bar.say)
    if judgements := results.judgements():
        printer.print(verdict_table(judgements))
    printer.print(f"report: {page}", highlight=False, soft_wrap=True)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def selected(words: Sequence[str]) -> list[Study]:
    """The studies that some figures, claims or studies need, in the report's order."""
    from recombine.figures import FIGURES, full_name

    claims = {claim: study.name for study in STUDIES.values() for claim in study.claims}
    wanted: list[str] = []
    for word in words:
        name = full_name(word)
        if name == "all":
            wanted += STUDIES
        elif name in STUDIES:
            wanted.append(name)
        elif name in FIGURES:
            wanted += FIGURES[name].studies
        elif word.upper() in claims:
            wanted.append(claims[word.upper()])
        else:
            extra = [name for name in FIGURES if not name.startswith("fig") and name not in STUDIES]
            raise InvalidValue("what", word, f"all, fig1 … fig15, C1 … C18, {listed([*STUDIES, *extra])}")
    return [study for name, study in STUDIES.items() if name in wanted]


def written(results: Results, say: object = None) -> Path:
    """The report of a folder of results."""
    from recombine.report import write_report

    datasets = {name: results.dataset(name) for name in results.studies}
    questions = {name: STUDIES[name].question for name in datasets}
    extra = {"say": say} if callable(say) else {}
    return write_report(results.path, datasets, questions, results.judgements(), results.provenance, **extra)


def verdict_table(judgements: Sequence[Judgement]) -> Table:
    """A line a claim."""
    table = Table("claim", "verdict", "cases", "seeds", "weakest case, mean \\[interval]")
    for judgement in judgements:
        color = COLORS[judgement.verdict]
        verdict = f"[{color}]{judgement.verdict}[/{color}]"
        shown = headline(judgement).replace("[", "\\[")
        table.add_row(judgement.claim, verdict, tally(judgement), str(judgement.seeds or "–"), shown)
    return table


def report(
    folder: Path,
    /,
    *,
    write: Annotated[
        list[Path] | None, Parameter(help="Markdown files whose marked blocks are written anew.", negative=())
    ] = None,
) -> None:
    """Write a folder's figures, verdicts and page anew from its datasets; trains nothing.

    Marked blocks of a Markdown file look like <!-- verdicts: begin --> … <!-- verdicts: end -->. Names: verdicts,
    claims (case by case), provenance, and caption_NAME for every figure.
    """
    results = Results.existing(folder)
    blocks = _blocks(results)
    texts = {path: _marked(path, blocks) for path in write or []}
    page = written(results)
    for path, text in texts.items():
        write_file(path, with_blocks(text, blocks).encode(), "write")
    console().print(f"report: {page}", highlight=False, soft_wrap=True)


def _blocks(results: Results) -> dict[str, str]:
    """Everything that can stand between marks."""
    from recombine.figures import FIGURES

    judgements = results.judgements()
    blocks = {
        "verdicts": markdown_table(judgements),
        "claims": claim_by_claim(judgements),
        "provenance": provenance_table(results.provenance),
    }
    for spec in FIGURES.values():
        if all(study in results.studies for study in spec.studies):
            datasets = [results.dataset(study) for study in spec.studies]
            blocks[f"caption_{spec.name}"] = escaped(spec.caption(*datasets))
    return blocks


def _marked(path: Path, blocks: Mapping[str, str]) -> str:
    """The text of a file that has marks, all of them known."""
    with explained(path, "write"):
        text = path.read_text()
    names = marked_blocks(text)
    if not names or any(name not in blocks for name in names):
        raise InvalidValue("write", str(path), f"a file with marked blocks, named among {listed(blocks)}")
    return text


def figure(
    name: str,
    /,
    *,
    source: Annotated[Path, Parameter(name="--from", help="Folder written by reproduce.")] = Path("report"),
    out: Annotated[Path | None, Parameter(help="Folder for the files. Default: the figures of --from.")] = None,
) -> None:
    """Draw one figure again from stored results, as PNG and SVG, and print its caption."""
    from recombine.figures import figure_named
    from recombine.report import save_figure

    spec = figure_named(name)
    results = Results.existing(source)
    datasets = [results.dataset(study) for study in spec.studies]
    folder = out if out is not None else results.path / "figures"
    save_figure(spec, datasets, folder)
    printer = console()
    printer.print(spec.caption(*datasets), highlight=False, markup=False)
    printer.print(f"figure: {folder / spec.name}.png and .svg", highlight=False, soft_wrap=True)


def claims(
    *names: str,
    source: Annotated[Path, Parameter(name="--from", help="Folder written by reproduce.")] = Path("report"),
) -> None:
    """Judge the claims again from stored results; with names, case by case."""
    results = Results.existing(source)
    found = {judgement.claim: judgement for judgement in results.judgements()}
    printer = console()
    if not names:
        printer.print(verdict_table(list(found.values())))
        return
    for name in names:
        if name.upper() not in found:
            raise InvalidValue("claim", name, f"one that was judged: {listed(found)}")
        judgement = found[name.upper()]
        printer.print(f"{judgement.claim}: {judgement.text}", markup=False, highlight=False, soft_wrap=True)
        printer.print(f"criterion: {judgement.criterion}", markup=False, highlight=False, soft_wrap=True)
        table = Table("case", "evidence, mean \\[interval]", "outcome")
        for case in judgement.cases:
            table.add_row(case.name, shown_case(case).replace("[", "\\["), case.outcome)
        printer.print(table)
        printer.print(f"verdict: {judgement.verdict}", markup=False, highlight=False)
