"""`recombine reproduce`, `figure`, `claims` and `report`: train a preset, measure it, judge the claims, draw, write."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from recombine.claims import CLAIMS, Judgement
from recombine.cli.destinations import marked_document, require_folder
from recombine.cli.options import ResultsPath, SomePath, StorePath, Whole
from recombine.cli.progress import TrainingBar
from recombine.cli.screen import console, paragraph, say
from recombine.cli.tables import Column, Holds, write_table
from recombine.errors import InvalidValue, listed
from recombine.figures import FIGURES, FigureSpec, figure_named, full_name
from recombine.files import write as write_file
from recombine.report.markdown import escaped
from recombine.report.verdicts import (
    claim_by_claim,
    headline,
    markdown_table,
    provenance_table,
    shown_case,
    tally,
    with_blocks,
)
from recombine.results import Results
from recombine.store import store_path
from recombine.store.names import MARKER
from recombine.studies import PRESETS, STUDIES, Study, preset_named
from recombine.training import DEVICES

COLORS = {"supported": "green", "partly supported": "yellow", "not supported": "red", "undecided": "yellow"}
BLOCKS = ("verdicts", "claims", "provenance")
"""Names of marked blocks of a document, other than captions."""
PAPER_FIGURES = [name for name in FIGURES if name.startswith("fig")]
OTHER_FIGURES = [name for name in FIGURES if name not in PAPER_FIGURES]
WHAT_CHOICES = (
    f"all, {PAPER_FIGURES[0]} … {PAPER_FIGURES[-1]}, {min(CLAIMS, key=len)} … {list(CLAIMS)[-1]}, "
    f"{listed(dict.fromkeys([*STUDIES, *OTHER_FIGURES]))}"
)


def reproduce(
    *what: Annotated[str, Parameter(help=f"Any of: {WHAT_CHOICES}. Default: all.")],
    preset: Annotated[str, Parameter(help=f"{listed(PRESETS)}: small and quick, or the paper's settings.")] = "quick",
    seeds: Whole | None = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    device: Annotated[str, Parameter(help=f"{listed(DEVICES)}.")] = "auto",
    members: Whole | None = None,
    processes: Whole | None = None,
    store: StorePath = None,
    out: SomePath = Path("report"),
) -> None:
    """Re-run the paper's figures and claims; write a report. What is trained already is served from the store.

    Parameters
    ----------
    seeds
        Seeds where a claim is judged; by default as many as the preset asks for.
    changes
        A field of the preset, as NAME=VALUE; may be given several times.
    members
        Most networks in one program on a GPU.
    processes
        Training processes of one thread each, on a CPU. Default: one per core.
    out
        Folder for datasets, figures and the page.
    """
    size = preset_named(preset).changed(_changes(changes or [], seeds))
    studies = selected(what or ("all",))
    if processes is not None and processes < 1:
        raise InvalidValue("processes", processes, "at least 1")
    if (out / MARKER).exists() or out.absolute() == store_path(store).absolute():
        raise InvalidValue("out", str(out), "a folder for a report, not a directory of runs")

    from recombine.reproduction import reproduce as run

    with TrainingBar() as bar:
        results = run(
            studies, size, store, out, device=device, members=members,
            processes=processes or available_cores(), watch=bar, say=bar.say,
        )  # fmt: skip
        page = written(results, bar.say_above)
    if judgements := results.judgements():
        _print_verdicts(judgements)
    say(f"report: {page}")


def _changes(changes: Sequence[str], seeds: int | None) -> list[str]:
    """Changes of a preset, each field once."""
    fields: dict[str, str] = {}
    for change in [*changes, *([] if seeds is None else [f"seeds={seeds}"])]:
        field = change.partition("=")[0]
        if field in fields:
            both = f"--set {fields[field]} and " + (f"--seeds {seeds}" if change not in changes else f"--set {change}")
            raise InvalidValue(field, change.partition("=")[2], f"one value ({both} contradict each other)")
        fields[field] = change
    return list(fields.values())


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def selected(words: Sequence[str]) -> list[Study]:
    """The studies that some figures, claims or studies need, in the report's order."""
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
            raise InvalidValue("what", word, WHAT_CHOICES)
    return [study for name, study in STUDIES.items() if name in wanted]


def written(results: Results, note: Callable[[str], None] = lambda line: None) -> Path:
    """The report of a folder of results."""
    from recombine.report import write_report

    datasets = {name: results.dataset(name) for name in results.studies}
    questions = {name: STUDIES[name].question for name in datasets}
    return write_report(results.path, datasets, questions, results.judgements(), results.provenance, say=note)


def _print_verdicts(judgements: Sequence[Judgement]) -> None:
    columns = [
        Column("claim", [judgement.claim for judgement in judgements], Holds.NAMES),
        Column("verdict", [Text(j.verdict, style=COLORS[j.verdict]) for j in judgements], Holds.NAMES),
        Column("seeds", [str(judgement.seeds or "–") for judgement in judgements]),
        Column("cases", [tally(judgement) for judgement in judgements], Holds.PROSE),
        Column("weakest case, mean [interval]", [headline(judgement) for judgement in judgements], Holds.PROSE),
    ]
    write_table(console(), columns)


def report(
    folder: Annotated[SomePath, Parameter(help="Folder written by reproduce.")],
    /,
    *,
    write: Annotated[
        list[Path] | None, Parameter(help="Markdown files whose marked blocks are written again.", negative=())
    ] = None,
) -> None:
    """Write a folder's figures, verdicts and page again from its datasets."""
    results = Results.existing(folder)
    texts = {path: marked_document(path, [*BLOCKS, *_captioned(results)]) for path in write or []}
    blocks = _blocks(results) if texts else {}
    page = written(results)
    for path, text in texts.items():
        write_file(path, with_blocks(text, blocks).encode(), "write")
    say(f"report: {page}")


def _blocks(results: Results) -> dict[str, str]:
    """Everything that can stand between marks."""
    judgements = results.judgements()
    texts = (markdown_table(judgements), claim_by_claim(judgements), provenance_table(results.provenance))
    blocks = dict(zip(BLOCKS, texts, strict=True))
    for name, spec in _captioned(results).items():
        blocks[name] = escaped(spec.caption(*(results.dataset(study) for study in spec.studies)))
    return blocks


def _captioned(results: Results) -> dict[str, FigureSpec]:
    """The figures that a folder has all data for, by the names of their captions."""
    return {
        f"caption_{spec.name}": spec
        for spec in FIGURES.values()
        if all(study in results.studies for study in spec.studies)
    }


def figure(
    name: Annotated[str, Parameter(help=f"One of {listed(FIGURES)}; a number is a figure of the paper.")],
    /,
    *,
    source: ResultsPath = Path("report"),
    out: Annotated[SomePath | None, Parameter(help="Folder for the files. Default: the figures of --from.")] = None,
) -> None:
    """Draw one figure again from stored results, as PNG and SVG, and print its caption."""
    from recombine.report import save_figure

    spec = figure_named(name)
    results = Results.existing(source)
    datasets = [results.dataset(study) for study in spec.studies]
    folder = out if out is not None else results.path / "figures"
    require_folder(folder, "out")
    save_figure(spec, datasets, folder)
    paragraph(spec.caption(*datasets))
    say(f"figure: {folder / spec.name}.png and .svg")


def claims(
    *names: Annotated[str, Parameter(help=f"Any of {listed(CLAIMS)}.")], source: ResultsPath = Path("report")
) -> None:
    """Judge the claims again from stored results; with names, case by case."""
    for name in names:
        if name.upper() not in CLAIMS:
            raise InvalidValue("claim", name, listed(CLAIMS))
    results = Results.existing(source)
    judgements = {judgement.claim: judgement for judgement in results.judgements()}
    for name in names:  # known, but perhaps without its study here
        if name.upper() not in judgements:
            raise InvalidValue("claim", name, f"one that was judged: {listed(judgements)}")
    if not names:
        _print_verdicts(list(judgements.values()))
    for name in names:
        _print_cases(judgements[name.upper()])


def _print_cases(judgement: Judgement) -> None:
    paragraph(f"{judgement.claim}: {judgement.text}")
    paragraph(f"criterion: {judgement.criterion}")
    columns = [
        Column("case", [case.name for case in judgement.cases], Holds.NAMES),
        Column("outcome", [case.outcome for case in judgement.cases], Holds.NAMES),
        Column("evidence, mean [interval]", [shown_case(case) for case in judgement.cases], Holds.PROSE),
    ]
    if judgement.cases:
        write_table(console(), columns)
    say(f"verdict: {judgement.verdict}")
