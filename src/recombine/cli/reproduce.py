"""`recombine reproduce`, `figure`, `claims` and `report`: train a preset, measure it, judge the claims, draw, write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from recombine.cli.destinations import marked_document, require_folder
from recombine.cli.options import (
    ResultsPath,
    SchedulerAddress,
    SchedulerFile,
    SomePath,
    StorePath,
    Whole,
    chosen_scheduler,
)
from recombine.cli.tables import Column, Holds, write_table
from recombine.errors import InvalidValue, listed
from recombine.files import write as write_file
from recombine.papers import DEFAULT as PAPER
from recombine.reproduction.claims import Judgement
from recombine.reproduction.findings import Findings
from recombine.reproduction.report.verdicts import (
    brief_table,
    causes_table,
    claim_by_claim,
    costs_table,
    escaped,
    evidence,
    interval_text,
    markdown_table,
    network_count,
    provenance_table,
    robustness,
    sentence,
    verdict_text,
    with_blocks,
)
from recombine.reproduction.results import Results
from recombine.screen import console, paragraph, say
from recombine.store import store_path
from recombine.store.names import MARKER
from recombine.sweep.bar import TrainingBar
from recombine.training import DEVICES

COLORS = {
    "supported": "green", "partly supported": "yellow", "not supported": "red", "reversed": "red",
    "undecided": "yellow", "not decidable": "yellow", "direction only": "", "exploratory": "",
}  # fmt: skip
BLOCKS = ("verdicts", "verdicts_in_brief", "causes", "claims", "provenance", "costs")
"""Names of marked blocks of a document, other than captions."""


def reproduce(
    *what: Annotated[str, Parameter(help=f"Any of: {PAPER.choices}. Default: all.")],
    preset: Annotated[
        str, Parameter(help=f"{listed(PAPER.presets)}: small and quick, or the paper's settings.")
    ] = "quick",
    seeds: Whole | None = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    device: Annotated[str, Parameter(help=f"{listed(DEVICES)}.")] = "auto",
    members: Whole | None = None,
    processes: Whole | None = None,
    scheduler: SchedulerAddress = None,
    scheduler_file: SchedulerFile = None,
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
    settings = PAPER.preset_named(preset).changed(_changes(changes or [], seeds))
    studies = PAPER.selected(what or ("all",))
    if processes is not None and processes < 1:
        raise InvalidValue("processes", processes, "at least 1")
    cluster = chosen_scheduler(scheduler, scheduler_file)
    if cluster is not None and processes is not None:
        raise InvalidValue("processes", processes, "nothing together with a scheduler, whose workers are the processes")
    if (out / MARKER).exists() or out.absolute() == store_path(store).absolute():
        raise InvalidValue("out", str(out), "a folder for a report, not a directory of runs")

    from recombine.reproduction.reproduce import reproduce as run

    with TrainingBar() as bar:
        results = run(
            studies, settings, store, out, device=device, members=members,
            processes=processes or (available_cores() if cluster is None else None), scheduler=cluster, watch=bar,
            say=bar.say, paper=PAPER,
        )  # fmt: skip
        findings = Findings(PAPER, results)
        page = written(findings, bar.say_above)
    if findings.judgements:
        _print_verdicts(findings.judgements)
    if findings.outdated:
        say(f"measured by another edition, and left out: {listed(findings.outdated)}")
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


def written(findings: Findings, note: Callable[[str], None] = lambda line: None) -> Path:
    """The report of a folder of results, with the decoders that it keeps."""
    from recombine.page import report_explorer
    from recombine.page.training_panel import training_panel
    from recombine.reproduction.reporting import write_report

    panels = {"data": training_panel(heading="h3")}
    if findings.results.decoders is not None:
        panels["question"] = report_explorer(findings.results)
    return write_report(findings, say=note, panels=panels)


def _print_verdicts(judgements: Sequence[Judgement]) -> None:
    columns = [
        Column("claim", [judgement.claim for judgement in judgements], Holds.NAMES),
        Column("verdict", [Text(verdict_text(j), style=COLORS[j.verdict]) for j in judgements], Holds.NAMES),
        Column("learnt", [network_count(judgement) for judgement in judgements]),
        Column("evidence", [sentence(judgement) for judgement in judgements], Holds.PROSE),
        Column("robustness", [robustness(judgement) for judgement in judgements], Holds.PROSE),
    ]
    if any(judgement.verdict == "direction only" for judgement in judgements):
        columns.insert(2, Column("reference", [judgement.reference or "–" for judgement in judgements], Holds.NAMES))
    write_table(console(), columns)
    if late := [judgement.claim for judgement in judgements if judgement.timing == "after the data"]:
        say(f"criteria changed after the data: {listed(late)}")


def report(
    folder: Annotated[SomePath, Parameter(help="Folder written by reproduce.")],
    /,
    *,
    write: Annotated[
        list[Path] | None, Parameter(help="Markdown files whose marked blocks are written again.", negative=())
    ] = None,
    telling: Annotated[
        Path | None,
        Parameter(
            help="JSON file for what diagnose says on how telling its numbers are and what to try (study markers)."
        ),
    ] = None,
    reference: Annotated[
        Path | None, Parameter(help="JSON file for the verdicts, which stand beside those of few seeds.")
    ] = None,
    store: Annotated[
        SomePath | None,
        Parameter(help="Directory of the folder's runs, from which decoders to explore are taken into the folder."),
    ] = None,
) -> None:
    """Write a folder's figures, verdicts and page again from its datasets."""
    findings = Findings(PAPER, Results.existing(folder))
    _require_present(findings, findings.outdated)
    captions = [f"caption_{name}" for name in findings.figures]
    texts = {path: marked_document(path, [*BLOCKS, *captions]) for path in write or []}
    blocks = _blocks(findings) if texts else {}
    if store is not None:
        _collect(findings, store)
    page = written(findings)
    for path, text in texts.items():
        write_file(path, with_blocks(text, blocks).encode(), "write")
    if telling is not None:
        from recombine.papers.forced_rendering.markers.telling import write_telling

        write_telling(findings.results, findings.judgements, telling)
    if reference is not None:
        verdicts = {judgement.claim: judgement.verdict for judgement in findings.judgements}
        write_file(reference, f"{json.dumps(verdicts, indent=1)}\n".encode(), "reference")
    say(f"report: {page}")


def _collect(findings: Findings, store: Path) -> None:
    """Take the decoders of the explorer from a store into the folder."""
    from recombine.reproduction.explorer import collect, kept_decoders
    from recombine.store import Store

    collect(findings.results, PAPER, PAPER.preset(**findings.preset), Store(store, create=False), say)
    if not kept_decoders(findings.results):
        raise InvalidValue(
            "store", str(store), f"a store with networks behind {str(findings.results.path)!r} that learnt"
        )


def _require_present(findings: Findings, outdated: Sequence[str]) -> None:
    """Refuse Datasets that another edition measured: what they hold is judged and drawn otherwise now."""
    if outdated:
        allowed = (
            f"results of this edition (another one measured {listed(outdated)}; 'recombine reproduce' does it again)"
        )
        raise InvalidValue("from", str(findings.results.path), allowed)


def _blocks(findings: Findings) -> dict[str, str]:
    """Everything that can stand between marks."""
    judgements, provenance = findings.judgements, findings.results.provenance
    texts = (
        markdown_table(judgements), brief_table(judgements, PAPER.sections), causes_table(judgements),
        claim_by_claim(judgements), provenance_table(provenance), costs_table(findings.results.costs()),
    )  # fmt: skip
    captions = {f"caption_{name}": escaped(findings.caption(spec)) for name, spec in findings.figures.items()}
    return {**dict(zip(BLOCKS, texts, strict=True)), **captions}


def figure(
    name: Annotated[str, Parameter(help=f"One of {listed(PAPER.figures)}; a number is a figure of the paper.")],
    /,
    *,
    source: ResultsPath = Path("report"),
    out: Annotated[SomePath | None, Parameter(help="Folder for the files. Default: the figures of --from.")] = None,
) -> None:
    """Draw one figure again from stored results, as PNG and SVG, and print its caption."""
    from recombine.reproduction.reporting import save_figure

    spec = PAPER.figure_named(name)
    findings = Findings(PAPER, Results.existing(source))
    _require_present(findings, [study for study in findings.outdated if study in spec.studies])
    datasets = findings.datasets(spec)
    folder = out if out is not None else findings.results.path / "figures"
    require_folder(folder, "out")
    save_figure(spec, datasets, folder)
    paragraph(findings.caption(spec))
    say(f"figure: {folder / spec.name}.png and .svg")


def claims(
    *names: Annotated[str, Parameter(help=f"Any of {listed(PAPER.claims)}.")], source: ResultsPath = Path("report")
) -> None:
    """Judge the claims again from stored results; with names, case by case."""
    for name in names:
        if name.upper() not in PAPER.claims:
            raise InvalidValue("claim", name, listed(PAPER.claims))
    findings = Findings(PAPER, Results.existing(source))
    wanted = {study for name in names or PAPER.claims for study in PAPER.claims[name.upper()].studies}
    _require_present(findings, [study for study in findings.outdated if study in wanted])
    judgements = {judgement.claim: judgement for judgement in findings.judgements}
    for name in names:  # known, but perhaps without its study here
        if name.upper() not in judgements:
            raise InvalidValue("claim", name, f"one that was judged: {listed(judgements)}")
    if not names:
        _print_verdicts(list(judgements.values()))
    for name in names:
        _print_cases(judgements[name.upper()])


def _print_cases(judgement: Judgement) -> None:
    paragraph(f"{judgement.claim}: {judgement.text} ({judgement.where})")
    tests = [(kind, test) for kind, tests in evidence(judgement) for test in tests]
    columns = [
        Column("", [kind for kind, _ in tests]),
        Column("case", [test.case for _, test in tests], Holds.NAMES),
        Column("outcome", [test.outcome for _, test in tests], Holds.NAMES),
        Column("learnt", [f"{test.learnt}/{test.trained}" for _, test in tests]),
        Column("estimate [95 % interval]", [interval_text(test.interval) for _, test in tests]),
        Column("claimed", [f"{test.statistic} {test.claimed}" for _, test in tests], Holds.PROSE),
    ]
    if tests:
        write_table(console(), columns)
    say(f"verdict: {verdict_text(judgement)}")
