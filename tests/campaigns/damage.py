"""Folders whose files are harmed one at a time, the commands that then meet them, and what these may say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.campaigns.faults import Zygote
from tests.campaigns.harm import Harm
from tests.campaigns.scenes import STUDY, SWEEP, Outcome, Step, failure, unacceptable

BATCH = 100
"""Cases that one child takes on; one that dies or hangs is replaced."""
Case = tuple[str, Harm]
"""A file's path below the folder, and what happens to it."""


@dataclass
class Damaged:
    """A store with harmed files."""

    zygote: Zygote
    pristine: Path
    folder: Path

    def steps(self) -> dict[str, Step]:
        """What is done after the harm, by name."""
        store = ["--store", str(self.folder)]
        return {
            "list": ["main", "runs", "list", *store],
            "verify": ["main", "verify", str(self.folder)],
            "export": ["main", "runs", "export", f"{self.folder}.csv", *store],
            "table": ["text", f"{self.folder}.csv"],
            "train": ["main", *SWEEP, *store],
            "weights": ["weights", str(self.folder)],
            "list again": ["main", "runs", "list", *store],
            "verify again": ["main", "verify", str(self.folder)],
        }

    def judged(self, case: Case, outcomes: dict[str, Any]) -> list[str]:
        """What is wrong with what was done after a harm, none of which ended abruptly."""
        path, (harm, *_) = case
        whole, wrong = self.whole, []
        cache, kept = path.startswith("index.tsv"), path.startswith(("runs/", "checkpoints/"))
        differs = {name for name in outcomes if outcomes[name] != whole[name]}
        unfinished = path.startswith("checkpoints/")  # whether `list` counts a broken one as unfinished is its business
        if "list" in differs and (cache or (silent(outcomes["list"]) and not unfinished)):
            wrong.append(f"list differs: {brief(outcomes['list'])}")
        if {"export", "table"} & differs and (cache or outcomes["export"]["code"] == 0):
            wrong.append(f"export differs: {brief(outcomes['export'])}")
        gone = unfinished and harm == "missing"  # nobody can know
        if kept and not gone and outcomes["verify"]["code"] != 1:
            wrong.append(f"verify does not report it: {brief(outcomes['verify'])}")
        if (cache or kept) and failure(outcomes["train"]):
            wrong.append(f"train fails: {failure(outcomes['train'])}")
        if outcomes["train"]["code"] == 0 and "weights" in differs:
            wrong.append(f"other weights after training: {brief(outcomes['weights'])}")
        if outcomes["train"]["code"] == 0 and outcomes["verify again"]["code"] != 0:
            wrong.append(f"still damaged after training: {brief(outcomes['verify again'])}")
        if outcomes["train"]["code"] == 0 and rows(outcomes["list again"]) != rows(whole["list again"]):
            wrong.append(f"list differs after training: {brief(outcomes['list again'])}")
        return wrong

    @cached_property
    def whole(self) -> dict[str, Any]:
        """The outcomes where nothing is harmed."""
        ((_, outcomes),) = self.outcomes([(".", ("nothing",))])
        return outcomes

    def outcomes(self, cases: Iterable[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
        """Each case with its outcomes by name; of a child that died or hung, the last ones are missing."""
        left, steps = list(cases), self.steps()
        while left:
            batch = left[:BATCH]
            outcomes = self.zygote.run([step for case in batch for step in [*self.harmed(case), *steps.values()]])
            for first in range(0, len(outcomes), len(steps) + 2):
                yield left.pop(0), dict(zip(steps, outcomes[first + 2 : first + 2 + len(steps)], strict=False))

    def harmed(self, case: Case) -> list[Step]:
        """The steps that do the harm to a folder that is whole."""
        path, harm = case
        return [["restore", str(self.pristine), str(self.folder)], ["harm", str(self.folder / path), *harm]]

    def problems(self, cases: Iterable[Case]) -> list[tuple[str, str]]:
        """Everything that is wrong, as `(case, what)`."""
        found = []
        for (path, harm), outcomes in self.outcomes(cases):
            name = f"{path} {' '.join(map(str, harm))}"
            abrupt = {step: text for step, outcome in outcomes.items() if (text := abruptly(outcome))}
            found += [(name, f"{step}: {text}") for step, text in abrupt.items()]
            if not abrupt:
                found += [(name, text) for text in self.judged((path, harm), outcomes)]
        return found


@dataclass
class DamagedResults(Damaged):
    """A results folder with harmed files, beside the store that it was measured on."""

    again: bool = False
    """Whether to judge and reproduce after the harm, which takes longer than to read."""

    def steps(self) -> dict[str, Step]:
        out = str(self.folder / "out")
        looks: dict[str, Step] = {
            "verify": ["main", "verify", out],
            "datasets": ["datasets", out],
            "provenance": ["provenance", out],
        }
        works: dict[str, Step] = {
            "claims": ["main", "claims", "C26", "--from", out],
            "reproduce": ["main", "reproduce", *STUDY, "--store", str(self.folder / "store"), "--out", out],
            "datasets again": ["datasets", out],
            "verify again": ["main", "verify", out],
        }
        return looks | works if self.again else looks

    def judged(self, case: Case, outcomes: dict[str, Any]) -> list[str]:
        path, (harm, *_) = case
        whole, wrong = self.whole, []
        for name in {"claims", "datasets", "provenance"} & set(outcomes):
            if outcomes[name]["code"] == 0 and outcomes[name] != whole[name]:
                wrong.append(f"{name} differs")
        if harm != "nothing" and outcomes["verify"]["code"] != 1:
            wrong.append(f"verify does not report it: {brief(outcomes['verify'])}")
        if harm == "nothing" and failure(outcomes["verify"]):
            wrong.append(f"verify reports damage where there is none: {brief(outcomes['verify'])}")
        if not self.again:
            return wrong
        remade = path.startswith("out/data/") and harm in ("flip", "shorten", "missing")
        if remade and failure(outcomes["reproduce"]):
            wrong.append(f"reproduce does not make it again: {failure(outcomes['reproduce'])}")
        if outcomes["reproduce"]["code"] == 0:
            if outcomes["datasets again"] != whole["datasets again"]:
                wrong.append(f"other Datasets after reproducing: {brief(outcomes['datasets again'])}")
            if outcomes["verify again"]["code"] != 0:
                wrong.append(f"still damaged after reproducing: {brief(outcomes['verify again'])}")
        return wrong


def abruptly(outcome: Outcome | str | None) -> str | None:
    """Why an outcome is no orderly one: a traceback, a death, a wait."""
    return unacceptable(outcome) if isinstance(outcome, dict) else None


def silent(outcome: Outcome) -> bool:
    """Whether a difference goes unmentioned."""
    return outcome["code"] == 0 and "damaged" not in outcome["out"] + outcome["err"]


def rows(outcome: Outcome) -> list[str]:
    """Lines in an order that does not tell which run was trained last."""
    return sorted(outcome["out"].splitlines())


def brief(outcome: Outcome) -> str:
    """The end of what a command said."""
    said = [*outcome["out"].splitlines(), *outcome["err"].splitlines(), ""]
    return f"exit code {outcome['code']}, {said[-2] if len(said) > 1 else 'nothing said'}"
