"""`recombine reproduce`, `figure`, `claims` and `report`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from recombine.cli.arena import marked_document, write_results
from recombine.cli.options import Overwrite, ResultsPath, SomePath, Whole, require_file
from recombine.cli.study_file import FLAG as STUDY_FILE
from recombine.cli.study_file import paper_named as installed
from recombine.cli.tables import Column, write_table
from recombine.cli.train import ExecutorFlags
from recombine.console import console, late_bar, paragraph, say
from recombine.errors import InvalidValue, listed
from recombine.files import require_folder, require_own
from recombine.files import write as write_file
from recombine.reproduction.claims import Judgement
from recombine.reproduction.installed import PAPER, paper_names
from recombine.reproduction.paper import Findings, Paper
from recombine.reproduction.preset import Preset
from recombine.reproduction.report import Parts, verdicts
from recombine.reproduction.results import CRITERIA, Results
from recombine.store import store_path
from recombine.store.names import MARKER
from recombine.sweep.progress import TrainingBar

COLORS = {
    "yes": "green", "partly": "yellow", "no": "red", "reversed": "red", "open": "yellow", "not decidable": "yellow",
    "direction only": "", "exploratory": "", "not measured": "",
}  # fmt: skip
OWNED = {False: "The paper's claims", True: "Claims of this project"}
PaperName = Annotated[
    str | None,
    Parameter(
        name=["--paper", STUDY_FILE],
        help=f"Name of the paper, or file of your own study. Papers: {listed(paper_names())}. Default: {PAPER.name}.",
    ),
]
PRESET = (
    "Small, fast settings (quick) or the paper's settings (paper). Default: quick; for a study in a file, all of it."
)
NUMBERED = [name for name, spec in PAPER.figures.items() if spec.numbered]
FIGURE = f"Figure to redraw: {listed(PAPER.figures)}; {NUMBERED[0]}–{NUMBERED[-1]} are the paper's figures."
BLOCKS: Mapping[str, Callable[[Findings], str]] = {
    "verdicts": lambda findings: verdicts.markdown_table(findings.judgements),
    "verdicts_ours": lambda findings: verdicts.markdown_table(findings.judgements, ours=True),
    "verdicts_in_brief": lambda findings: verdicts.brief_table(findings.judgements, findings.paper.sections),
    "causes": lambda findings: verdicts.causes_table(findings.judgements),
    "changed": lambda findings: verdicts.changed_table(findings.judgements, findings.paper.editions),
    "claims": lambda findings: verdicts.claim_by_claim(findings.judgements),
    "provenance": lambda findings: verdicts.provenance_table(findings.results.provenance),
    "costs": lambda findings: verdicts.costs_table(findings.results.costs()),
}
"""Functions that return the content of a document's marked blocks, except captions."""


STEPS = 3
"""Steps of a report other than figures: the verdicts, the explorer and the training panel."""


def reproduce(
    *what: Annotated[str, Parameter(help=f"What to reproduce. Choices: {PAPER.choices}. Default: all.")],
    preset: Annotated[str | None, Parameter(help=PRESET)] = None,
    seeds: Whole | None = None,
    changes: Annotated[list[str] | None, Parameter(name="--set")] = None,
    training: ExecutorFlags = ExecutorFlags(),  # noqa: B008
    out: SomePath = Path("report"),
    overwrite: Overwrite = False,
    paper: PaperName = None,
    register: bool = False,
) -> None:
    """Reproduce a paper's figures and claims, and write a report.

    Parameters
    ----------
    seeds
        Number of seeds for the claims. Default: set by the preset.
    changes
        Override a field of the preset with NAME=VALUE; may be repeated.
    out
        Write datasets, figures and the HTML page to this folder.
    register
        Only write the criteria of claims that have no data in the folder yet, and train nothing.
    """
    source = installed(paper)
    settings = source.preset_named(preset or next(iter(source.presets))).changed(
        [*(changes or []), *([] if seeds is None else [f"seeds={seeds}"])]
    )
    studies = source.selected(what or ("all",))
    if register:
        return _register(source, [study.name for study in studies], settings, out, overwrite)
    processes, scheduler = training.processes, training.scheduler
    if processes is not None and processes < 1:
        raise InvalidValue("processes", processes, "at least 1")
    if scheduler is not None and processes is not None:
        raise InvalidValue("processes", processes, "omitted if there is a scheduler")
    if (out / MARKER).exists() or out.absolute() == store_path(training.store).absolute():
        raise InvalidValue("out", str(out), "a folder for a report, not a directory of runs")

    from recombine.reproduction.reproduce import reproduce as run

    with TrainingBar() as bar:
        results = run(
            studies, settings, training.store, out, device=training.device or "auto", members=training.members,
            processes=processes or (len(os.sched_getaffinity(0)) if scheduler is None else None), scheduler=scheduler,
            watch=bar, say=bar.say, paper=source, overwrite=overwrite,
        )  # fmt: skip
        findings = Findings(source, results)
        page = written(findings, begin=bar.say_above)
    if findings.judgements:
        _print_verdicts(findings.judgements)
    if findings.outdated:
        say(f"omitted, since they were computed by another version: {listed(findings.outdated)}")
    say(f"report: {page}")
    return None


def _register(paper: Paper, studies: Sequence[str], preset: Preset, out: Path, overwrite: bool) -> None:
    from recombine.reproduction.reproduce import register

    require_folder(out, "out", overwrite)
    results = Results(out)
    names = register(results, paper, studies, preset)
    say(f"registered: {listed(names) or 'nothing, since all claims have data'} ({out / CRITERIA})")


def written(findings: Findings, out: Path | None = None, begin: Callable[[str], None] = lambda step: None) -> Path:
    """Write the report for a results folder, including its explorer, and return the path of the page."""
    from recombine.page import report_explorer
    from recombine.page.training import training_panel
    from recombine.reproduction.reporting import write_report

    panels: dict[str, Callable[[], Parts]] = {}
    if findings.results.decoders is not None:
        panels["question"] = partial(report_explorer, findings.results)
    if (live := findings.paper.training_panel) is not None:
        panels[live.section] = partial(training_panel, live, heading="h3")
    return write_report(findings, out, begin, panels)


def _print_verdicts(judgements: Sequence[Judgement]) -> None:
    groups = {title: [own for own in judgements if own.ours == ours] for ours, title in OWNED.items()}
    for title, group in groups.items():
        if not group:
            continue
        if all(groups.values()):
            say(f"{title}: {verdicts.counted(group)}")
        columns = [
            Column("claim", [judgement.claim for judgement in group], "left"),
            Column("verdict", [Text(verdicts.verdict_text(j), style=COLORS[j.described]) for j in group], "left"),
            Column("learnt", [verdicts.network_count(judgement) for judgement in group]),
            Column("evidence", [verdicts.sentence(judgement) for judgement in group], "left"),
            Column("robustness", [verdicts.robustness(judgement) for judgement in group], "left"),
        ]
        if any(verdicts.has_directions(judgement) and judgement.reference for judgement in group):
            columns.insert(2, Column("reference", [judgement.reference or "–" for judgement in group], "left"))
        write_table(console(), columns)
    if any(verdicts.has_directions(judgement) for judgement in judgements):
        paragraph(verdicts.DIRECTION)
    if late := [judgement.claim for judgement in judgements if judgement.timing == "after the data"]:
        say(f"criteria changed after data collection: {listed(late)}")


def report(
    folder: SomePath, /, *, out: SomePath | None = None, write: list[Path] | None = None,
    marker_auroc: SomePath | None = None, reference: SomePath | None = None, store: SomePath | None = None,
    arena: SomePath | None = None, overwrite: Overwrite = False, paper: PaperName = None,
) -> None:  # fmt: skip
    """Regenerate the figures, verdicts and HTML page of a results folder from its datasets.

    Parameters
    ----------
    folder
        Folder written by reproduce or arena.
    out
        Write the page, the verdicts and the figures to this folder. Default: the results folder.
    write
        Markdown files in which to update the marked blocks.
    marker_auroc
        Write the per-metric AUROCs, and the advice that diagnose prints, to this JSON file.
    reference
        JSON file to write the verdicts to, as a reference for runs with few seeds.
    store
        Store folder from which to copy the explorer's decoders into the results folder.
    arena
        Folder written by arena, to be shown in a section of the page.
    """
    if out is not None:
        require_folder(out, "out", overwrite)
    from recombine.arena.advice import with_arena
    from recombine.arena.protocol import FILE

    if (folder / FILE).is_file():
        others = {"store": store, "arena": arena, "reference": reference, "marker_auroc": marker_auroc, "paper": paper}
        for name, value in others.items():
            if value is not None:
                raise InvalidValue(name, str(value), "omitted for a folder written by arena")
        write_results(folder, out or folder, write or [])
        return say(f"arena: {out or folder}")
    if marker_auroc is not None:
        require_file(marker_auroc, "marker_auroc", "record of AUROCs", overwrite)
    if reference is not None:
        require_file(reference, "reference", "list of verdicts", overwrite)
    source = installed(paper) if arena is None else with_arena(installed(paper), arena)
    findings = Findings(source, Results.existing(folder))
    _require_present(findings, findings.outdated)
    captions = {f"caption_{name}": figure for name, figure in findings.figures.items()}
    texts = {path: marked_document(path, [*BLOCKS, *captions]) for path in write or []}
    if store is not None:
        from recombine.reproduction.explorer import collect, kept_decoders
        from recombine.store import Store

        preset = findings.paper.preset(**findings.preset)
        collect(findings.results, findings.paper, preset, Store(store, create=False), say)
        if not kept_decoders(findings.results):
            raise InvalidValue("store", str(store), f"a store with converged runs from {str(findings.results.path)!r}")
    with late_bar(len(findings.figures) + STEPS) as begin:
        page = written(findings, out, begin)
    blocks = {name: made(findings) for name, made in BLOCKS.items()} if texts else {}
    blocks |= {name: verdicts.escaped(findings.caption(figure)) for name, figure in captions.items()} if texts else {}
    for path, text in texts.items():
        write_file(path, verdicts.with_blocks(text, blocks).encode(), "write")
    if marker_auroc is not None:
        if findings.paper.write_markers is None:
            raise InvalidValue("marker_auroc", str(marker_auroc), "omitted, since this paper ranks no metrics")
        findings.paper.write_markers(findings.results, findings.judgements, marker_auroc)
    if reference is not None:
        judged = {judgement.claim: judgement.headline for judgement in findings.judgements}
        write_file(reference, f"{json.dumps(judged, indent=1)}\n".encode(), "reference")
    return say(f"report: {page}")


def _require_present(findings: Findings, outdated: Sequence[str]) -> None:
    """Raise if datasets were computed by another version, since they may be incompatible with this one."""
    if outdated:
        allowed = f"results of this version ({listed(outdated)} are older; run 'recombine reproduce' again)"
        raise InvalidValue("from", str(findings.results.path), allowed)


def figure(
    name: Annotated[str, Parameter(help=FIGURE)],
    /,
    *,
    source: ResultsPath = Path("report"),
    out: Annotated[SomePath | None, Parameter(help="Output folder. Default: the figures folder inside --from.")] = None,
    overwrite: Overwrite = False,
    paper: PaperName = None,
) -> None:
    """Redraw a figure from stored results, as PNG and SVG, and print its caption."""
    from recombine.reproduction.reporting import save_figure

    findings = Findings(installed(paper), Results.existing(source))
    spec = findings.paper.figure_named(name)
    _require_present(findings, [study for study in findings.outdated if study in spec.studies])
    caption = findings.caption(spec)
    folder = out if out is not None else findings.results.path / "figures"
    require_folder(folder, "out", overwrite=True)  # two files are added to it
    for kind in ("png", "svg"):
        require_own(folder / f"{spec.name}.{kind}", "out", "figure", overwrite or out is None)
    save_figure(findings.draw(spec), folder, spec.name)
    paragraph(caption)
    say(f"figure: {folder / spec.name}.png and .svg")


def claims(
    *names: Annotated[str, Parameter(help=f"Claims to show case by case: {listed(PAPER.claims)}.")],
    source: ResultsPath = Path("report"),
    paper: PaperName = None,
) -> None:
    """Re-evaluate the claims from stored results. Pass claim names to see the results case by case."""
    known = installed(paper).claims
    chosen = [name.upper() for name in names] or list(known)
    for name in chosen:
        if name not in known:
            raise InvalidValue("claim", name, f"one of {listed(known)}")
    findings = Findings(installed(paper), Results.existing(source))
    read = {study for name in chosen for study in known[name].studies}
    _require_present(findings, [study for study in findings.outdated if study in read])
    judgements = {judgement.claim: judgement for judgement in findings.judgements}
    if not names:
        return _print_verdicts(list(judgements.values()))
    for name in chosen:  # the claim is known, but its study may not be in this folder
        if name not in judgements:
            raise InvalidValue("claim", name, f"one of the evaluated claims: {listed(judgements)}")
        _print_cases(judgements[name])
    return None


def _print_cases(judgement: Judgement) -> None:
    for line in (f"{judgement.claim}: {judgement.text} ({judgement.where}).", *verdicts.explained(judgement)):
        paragraph(line)
    tests = verdicts.evidence(judgement)
    columns = [
        Column("", [kind for kind, _ in tests]),
        Column("case", [test.case for _, test in tests], "left"),
        Column("measured", [test.measured for _, test in tests], "left"),
        Column("estimate [95 % interval]", [verdicts.interval_text(test.interval) for _, test in tests]),
        Column("mean", [verdicts.plain_text(test) for _, test in tests]),
        Column("claimed", [test.claimed for _, test in tests], "left"),
        Column("outcome", [test.outcome for _, test in tests], "left"),
        Column("learnt", [f"{test.learnt}/{test.trained}" for _, test in tests]),
    ]
    if tests:
        write_table(console(), columns)
    say(verdicts.LEGEND)
