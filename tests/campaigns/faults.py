"""Faults: which can be injected, and a zygote whose children meet them.

    with Zygote(folder) as zygote:
        outcomes = zygote.run([["arm", case, log], ["main", "train", ...]])

A child that dies or hangs ends the list: its last outcome says so. `calls` reads the log of the shim.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.campaigns.zygote import SHIM

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_SECONDS = 30.0
"""A step that takes longer hangs. SQLite alone tries for ten seconds before it says that locks fail."""
START_SECONDS = 120.0

KINDS = (
    "create", "open", "list", "read", "write", "sync", "rename", "unlink", "mkdir", "rmdir", "truncate", "lock",
    "link", "close",
)  # fmt: skip
"""In the order of the shim's enumeration."""
CHANGING = ("create", "write", "rename", "unlink", "mkdir", "rmdir", "truncate", "link")
GROWING = ("create", "write", "sync", "rename", "mkdir", "truncate", "link", "close")
WATCH, KILL_BEFORE, KILL_AFTER, FAIL_ONCE, FAIL_ON, SHORT_ONCE, SHORT_THEN_FAIL = range(7)


@dataclass(frozen=True)
class Fault:
    """What happens at a storage call: how, with which error, and to which kinds of call it can happen."""

    name: str
    mode: int
    error: int = 0
    kinds: tuple[str, ...] = KINDS
    only: str = ""
    """What a path must contain to be affected."""

    def at(self, call: int) -> list[Any]:
        """The fault as the shim takes it."""
        return [call, self.mode, self.error, sum(1 << KINDS.index(kind) for kind in self.kinds), self.only]


NONE = Fault("no fault", WATCH)
KILLS = (Fault("killed before", KILL_BEFORE), Fault("killed after", KILL_AFTER))
ANSWERS = {
    errno.EIO: KINDS, errno.ENOSPC: GROWING, errno.EROFS: CHANGING, errno.EACCES: ("open", "list", *CHANGING),
    errno.ENOLCK: ("lock",), errno.ENOSYS: ("lock",), errno.EOPNOTSUPP: ("lock",),
}  # fmt: skip
"""Kinds of call that may end with each error."""
ERRORS = (
    *(
        Fault(f"{errno.errorcode[number]} {once}", mode, number, kinds)
        for number, kinds in ANSWERS.items()
        for once, mode in (("once", FAIL_ONCE), ("from then on", FAIL_ON))
    ),
    Fault("short write", SHORT_ONCE, 0, ("write",)),
    Fault("short write, then ENOSPC", SHORT_THEN_FAIL, errno.ENOSPC, ("write",)),
)


class Call(NamedTuple):
    """A storage call as the shim saw it."""

    number: int
    kind: str
    fault: str
    """What the shim did to it: killed, failed, halved, or `-`."""
    path: str

    @property
    def place(self) -> str:
        """The path without keys, digests and process numbers, to tell like calls from unlike ones."""
        return re.sub(r"(?<=[.#])\d+", "N", re.sub(r"[0-9a-f]{16,}", "KEY", self.path))

    def __str__(self) -> str:
        return f"call {self.number}, {self.kind} {self.path}"


def calls(log: Path, below: Path) -> list[Call]:
    """The calls of a log, with paths relative to a folder."""
    rows = [line.split(" ", 3) for line in log.read_text(errors="replace").splitlines()]
    return [Call(int(row[0]), row[1], row[2], os.path.relpath(row[3], below)) for row in rows]


def sampled(recorded: Sequence[Call], faults: Sequence[Fault], number: int) -> list[tuple[Call, Fault]]:
    """So many cases, spread over all kinds of call at all places; the faults that a call can meet are met in turn."""
    possible = {kind: [fault for fault in faults if kind in fault.kinds] for kind in KINDS}
    unlike = list({(call.kind, call.place): call for call in reversed(recorded) if possible[call.kind]}.values())
    chosen = spread(unlike[::-1], number)
    return [(call, possible[call.kind][turn % len(possible[call.kind])]) for turn, call in enumerate(chosen)]


def spread(items: Sequence[Any], number: int | None) -> list[Any]:
    """So many items, evenly spread; all if no number is given."""
    if number is None or number >= len(items):
        return list(items)
    return [items[len(items) * part // number] for part in range(number)]


def every(recorded: Sequence[Call], faults: Sequence[Fault]) -> list[tuple[Call, Fault]]:
    """All cases, or this process's part of them; the same call of several processes, which meet a fault alike, once."""
    cases = [(call, fault) for call in recorded for fault in faults if call.kind in fault.kinds]
    return own_part(list({(call.number, fault): (call, fault) for call, fault in cases}.values()))


def own_part(cases: Sequence[Any]) -> list[Any]:
    """Of all cases those that this process takes on: every n-th from the k-th on where `CAMPAIGN_PART` is `k/n`."""
    part, _, parts = os.environ.get("CAMPAIGN_PART", "0/1").partition("/")
    return list(cases[int(part) :: int(parts)])


@cache
def compiled_shim(folder: Path) -> Path:
    """The shim as a library; a machine without a C compiler cannot run the campaigns, and says so."""
    library = folder / "shim.so"
    command = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", str(HERE / "shim.c"), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return library


@dataclass
class Zygote:
    """The process that forks children, as a context manager."""

    folder: Path
    process: Any = field(init=False)

    def __enter__(self) -> Zygote:
        shim = str(compiled_shim(self.folder))
        environment = {"LD_PRELOAD": shim, SHIM: shim, "COLUMNS": "200", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.zygote", str(self.folder / "warm")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **environment},
        )  # fmt: skip
        self.buffer = b""
        assert self._reply(START_SECONDS) == ["ready"]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait(30)

    def run(self, steps: Sequence[Sequence[Any]], limit: float = LIMIT_SECONDS) -> list[dict[str, Any] | None]:
        """The outcomes of steps done by one child; of one that dies or hangs, `died` or `hung` is the last."""
        self.process.stdin.write(json.dumps(steps).encode() + b"\n")
        self.process.stdin.flush()
        child = int(self._reply(START_SECONDS)[1])
        outcomes: list[dict[str, Any] | None] = []
        while True:
            try:
                name, value = self._reply(limit)
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                while self._reply(START_SECONDS)[0] != "ended":
                    pass
                return [*outcomes, {"hung": limit}]
            if name == "ended":
                return outcomes if value == 0 else [*outcomes, {"died": value}]
            outcomes.append(value)

    def _reply(self, limit: float) -> list[Any]:
        """The next line, within so many seconds."""
        deadline = time.monotonic() + limit
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            assert part, "the zygote is gone"
            self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)
