"""What the campaigns run, and what must come of it, fault or no fault."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.campaigns.faults import NONE, Call, Fault, Zygote, calls
from tests.tiny import TINY

SWEEP = [
    "train", "--size", "8", "--decoder", "mlp", "--width", "2", "--depth", "1", "--steps", "3", "--samples", "20",
    "--batch", "8", "--seeds", "2", "--device", "cpu", "--checkpoint", "0",
]  # fmt: skip
"""Two runs, each with checkpoints."""
CHEAPER = {"seeds": "1", "size": "6", "width": "2", "steps": "2", "samples": "20"}
CHEAP = [f"{name}={CHEAPER.get(name, value)}" for name, value in (change.split("=") for change in TINY)]
SETTINGS = [*(word for change in CHEAP for word in ("--set", change)), "--device", "cpu", "--processes", "1"]
STUDY = ["encoder", *SETTINGS]
PROGRESS = re.compile(r"\d+ (s|min|h)\b.*: ")
"""Lines that say how far a command is."""
Step = Sequence[Any]
Outcome = dict[str, Any]


@dataclass
class Scene:
    """A command on a folder of its own, with what it must come to."""

    zygote: Zygote
    folder: Path
    """Where the cases are, one after the other; faults strike only below."""
    log: Path
    unmet: int = 0
    """Cases in which no call came that could meet the fault."""

    def words(self) -> list[str]:
        """The command."""
        return [*SWEEP, "--store", str(self.folder)]

    def contents(self) -> Step:
        """The step that reads what the command must come to."""
        return ["weights", str(self.folder)]

    def readers(self) -> list[Step]:
        """Steps that only look."""
        return [["main", "runs", "list", "--store", str(self.folder)], ["main", "verify", str(self.folder)]]

    def prepare(self) -> list[Step]:
        """Steps before the command."""
        return [["restore", None, str(self.folder)]]

    def is_killed(self, outcome: Outcome) -> bool:
        """Whether the command was killed; where others were, whether it took that well."""
        return outcome.get("died") == 9

    def may_be_unmet(self, cases: int) -> int:
        """In how many of so many cases the fault may not be met: none where each command makes the same calls."""
        return 0

    @cached_property
    def whole(self) -> tuple[Outcome, list[Outcome], list[Call]]:
        """What comes without a fault: the contents, what the readers say, and all storage calls."""
        outcomes = self.met(0, NONE, [self.contents(), *self.readers()])
        assert not any(map(failure, outcomes)), outcomes
        return outcomes[1], outcomes[2:], calls(self.log, self.folder)

    def met(self, call: int, fault: Fault, after: Sequence[Step] = ()) -> list[Outcome]:
        """Outcomes of the command when a call meets a fault, and of steps after it, when the fault is gone."""
        self.log.unlink(missing_ok=True)
        before = [*self.prepare(), ["arm", str(self.folder), str(self.log), *fault.at(call)]]
        outcomes = self.zygote.run([*before, ["main", *self.words()], ["disarm"], *after])
        outcomes = outcomes[len(before) :]
        return [*outcomes[:1], *outcomes[2:]]

    def finished(self) -> list[str]:
        """What is wrong after the same command is given again, without a fault."""
        contents, reports, _ = self.whole
        again = [["main", *self.words()], self.contents(), *self.readers()]
        outcomes = self.zygote.run([*self.again(), *again])[-len(again) :]
        problems = [f"the next command: {text}" for text in map(failure, outcomes) if text]
        if not problems and outcomes[1] != contents:
            problems.append("other contents after the next command")
        if not problems and outcomes[2:] != reports:
            problems.append("other reports after the next command")
        return [*problems, *(f"left behind: {path}" for path in self.left_behind())]

    def again(self) -> list[Step]:
        """Steps before the command is given again."""
        return []

    def left_behind(self) -> list[str]:
        """What nobody needs."""
        return leftovers(self.folder)


class Processes(Scene):
    """The sweep in two processes, and one that follows them; each of the three meets the fault at its own call."""

    def words(self) -> list[str]:
        return [*super().words(), "--processes", "2"]

    def prepare(self) -> list[Step]:
        return [*super().prepare(), *self.again()]

    def again(self) -> list[Step]:
        return [["fork_workers"]]

    def readers(self) -> list[Step]:
        return super().readers()[1:]  # which of the two finishes first is left open

    def is_killed(self, outcome: Outcome) -> bool:
        return super().is_killed(outcome) or unacceptable(outcome) is None

    def may_be_unmet(self, cases: int) -> int:
        """How often a process waits for a lock, and so how many calls it makes, depends on timing: one in ten."""
        return -(-cases // 10)

    def left_behind(self) -> list[str]:
        """Workers whose parent was killed may take a moment to end."""
        deadline = time.monotonic() + 5
        while (found := super().left_behind()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found


class Looking(Scene):
    """A command that only reads a store."""

    finished_store: Path
    command: str

    def words(self) -> list[str]:
        store = str(self.folder)
        return ["verify", store] if self.command == "verify" else ["runs", "list", "--store", store]

    def readers(self) -> list[Step]:
        return []

    def prepare(self) -> list[Step]:
        return [["restore", str(self.finished_store), str(self.folder)]]


class Reproduction(Scene):
    """A study measured on runs that are trained already: what `train` stores is the other scene's."""

    trained: Path
    """A store with the runs."""

    def words(self) -> list[str]:
        return ["reproduce", *STUDY, "--store", str(self.folder / "store"), "--out", str(self.folder / "out")]

    def contents(self) -> Step:
        return ["datasets", str(self.folder / "out")]

    def readers(self) -> list[Step]:
        return [["datasets", str(self.folder / "out")]]

    def prepare(self) -> list[Step]:
        return [["restore", str(self.trained), str(self.folder)]]


def failure(outcome: Any) -> str | None:
    """Why a command did not succeed, in short."""
    if not isinstance(outcome, dict) or outcome.get("code") == 0:
        return None
    if "hung" in outcome or "died" in outcome:
        return f"it {'hung' if 'hung' in outcome else 'died'} ({outcome})"
    return f"exit code {outcome['code']}: {(outcome['err'].strip().splitlines() or [''])[-1]}"


def unacceptable(outcome: Outcome) -> str | None:
    """Why an outcome is neither a success nor one line about a mistake."""
    if "hung" in outcome or "died" in outcome:
        return failure(outcome)
    lines = [line for line in outcome["err"].splitlines() if not PROGRESS.match(line)]
    if any(line.startswith("Traceback") for line in lines):
        return f"a traceback: {lines[-1]}"
    if any(not line.startswith("recombine: ") for line in lines):
        return f"raw text on standard error: {lines[0]}"
    if outcome["code"] == 2 and (len(lines) > 1 or not (lines or outcome["out"])):  # `verify` reports and goes on
        return f"{len(lines)} lines on standard error"
    return None if outcome["code"] in (0, 1, 2) else f"exit code {outcome['code']}"


def leftovers(folder: Path) -> list[str]:
    """What nobody needs once a command has finished: temporaries, checkpoints and locks of finished runs."""
    rooms = ("tmp", "checkpoints", "damaged", "locks")
    paths = [path for path in sorted(folder.rglob("*")) if path.name.startswith(".") or path.parent.name in rooms]
    return [str(path.relative_to(folder)) for path in paths]


def struck(scene: Scene) -> list[Call]:
    """The calls that met the fault in the last command."""
    return [call for call in calls(scene.log, scene.folder) if call.fault != "-"]


def is_index(call: Call) -> bool:
    """Whether a call is about the index, which is a cache that nothing may depend on."""
    return Path(call.path).name.startswith("index.tsv")


def grouped(failures: Sequence[tuple[str, str]], named: int = 4) -> str:
    """Failures `(case, what is wrong)` as a report: what is wrong, how often, and the first cases."""
    groups: dict[str, list[str]] = {}
    for case, wrong in failures:
        groups.setdefault(re.sub(r"(?<=\.)\d+", "N", re.sub(r"[0-9a-f]{16,}", "KEY", wrong)), []).append(case)
    lines = [f"{len({case for case, _ in failures})} cases failed"]
    for wrong, cases in sorted(groups.items(), key=lambda item: -len(item[1])):
        distinct = list(dict.fromkeys(cases))
        lines += [f"{len(distinct)} × {wrong}", *(f"      {case}" for case in distinct[:named])]
    return "\n".join(lines)
