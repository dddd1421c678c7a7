"""Time and memory to list, query and scan a store of many runs, and to add a run.

    python -m benchmarks.store --runs 100000 --folder FOLDER

Runs are synthetic: complete, but with small files, written without flushing. Every operation runs in a separate
process, as a command would; the first listing, which builds the index, is timed too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.manifest import manifest_text
from recombine.store import Store
from recombine.store.names import SCORES, pack
from recombine.store.run import ARRAYS, FILES, MANIFEST, RESULT, SPEC, WEIGHTS

if TYPE_CHECKING:
    from recombine.specs import RunSpec

LIMITS = {"list": 3.0, "where": 3.0, "scan": 2.0, "add": 0.020}
"""Limits in seconds; for adding, per run. Listing is timed as a command, including process start."""
COMMANDS = {"list": [], "where": ["--where", "encoding == 'bump' and depth >= 4"]}
"""Arguments of `recombine runs list`."""
MEMORY = 500
"""Limit on the memory of a process in MB."""
ADDED = 20


def written(store: Store, spec: RunSpec, number: int, shared: dict[str, bytes]) -> None:
    """Write a complete run without flushing."""
    result = {
        "status": "done", "scores": dict.fromkeys(SCORES, number / 1e6), "steps": 100,
        "provenance": {"finished": 1.7e9 + number},
    }  # fmt: skip
    contents = {SPEC: spec.to_json().encode(), RESULT: json.dumps(result).encode(), **shared}
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in FILES}
    folder = store.run(spec.digest).path
    folder.mkdir()
    for name, content in {**contents, MANIFEST: manifest_text(spec.digest, digests).encode()}.items():
        (folder / name).write_bytes(content)


def specs(count: int) -> list[RunSpec]:
    """Return specs of encodings × depths × widths × seeds. This imports torch, which listing does not."""
    from recombine.decoders import CNN
    from recombine.specs import RunSpec
    from recombine.tasks import BumpTask

    settings = [
        RunSpec(task=BumpTask(encoding=encoding), decoder=CNN(depth=depth, width=width))
        for encoding in ("bump", "rate")
        for depth in (2, 3, 4, 6)
        for width in (16, 32, 64)
    ]
    members = [spec.seeds(range(count // len(settings) + 1)) for spec in settings]
    return [spec for alike in zip(*members, strict=True) for spec in alike][:count]


def ask(question: str, path: Path, count: int) -> None:
    """Run one operation in this process, and print seconds and megabytes."""
    import numpy as np

    began = time.perf_counter()
    if question == "index":  # the first listing builds it
        assert len(Store(path).table()) == count
    elif question in COMMANDS:
        from recombine.cli import main

        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), suppress(SystemExit):
            main(["runs", "list", *COMMANDS[question], "--store", str(path)])
    elif question == "scan":
        assert len(set(Store(path).keys())) == count
    elif question == "load":
        assert 0 < len(Store(path).table("task.encoding == 'bump' and seed < 500")) < count
    else:
        import torch  # noqa: F401  # a training process has it loaded

        store, more = Store(path), specs(count + ADDED)[count:]
        result = {"status": "done", "scores": dict.fromkeys(SCORES, 0.5), "steps": 1, "provenance": {"finished": 2e9}}
        began = time.perf_counter()
        for spec in more:
            store.save(spec.digest, spec.to_json(), result, {"w": np.zeros(64)}, {"error": np.zeros(64)})
        began += (time.perf_counter() - began) * (1 - 1 / ADDED)
    seconds = time.perf_counter() - began
    if question == "add":  # so that the store can be measured again
        for spec in more:
            store.remove(spec.digest)
    print(json.dumps([seconds, _peak_megabytes()]))


def _peak_megabytes() -> float:
    """Return the peak memory of this process; `getrusage` would include that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument(
        "--folder", type=Path, help="Folder of the store, new or existing. Default: a temporary folder."
    )
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask:
        ask(given.ask, given.folder, given.runs)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        path = given.folder or Path(temporary) / "store"
        store = Store(path)
        began, have = time.perf_counter(), set(store.keys())
        shared = {WEIGHTS: pack({}), ARRAYS: pack({})}
        for number, spec in enumerate(specs(given.runs)):
            if spec.digest not in have:
                written(store, spec, number, shared)
        print(f"{given.runs} runs written in {time.perf_counter() - began:.0f} s")
        fails = []
        for question in ("index", "list", "where", "scan", "load", "add"):
            command = [sys.executable, "-m", "benchmarks.store", "--ask", question, "--folder", str(path)]
            began = time.perf_counter()
            done = subprocess.run([*command, "--runs", str(given.runs)], capture_output=True, text=True, check=True)
            seconds, megabytes = json.loads(done.stdout)
            if question in COMMANDS:
                seconds = time.perf_counter() - began
            limit = LIMITS.get(question)
            print(f"{question}: {seconds:.3f} s, {megabytes:.0f} MB" + (f" (limit {limit} s)" if limit else ""))
            if (limit and seconds > limit) or (question != "add" and megabytes > MEMORY):
                fails.append(question)
        print("holds" if not fails else f"FAILS: {', '.join(fails)}")
        return int(bool(fails))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
