"""Screens as golden text: what commands write to terminals of two sizes, and where there is none.

`python -m tests.golden.screens` writes them again into `screens/`. Look at each before committing it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shutil
import struct
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from recombine.cli import main as command
from recombine.store import Store

FOLDER = Path(__file__).parent / "screens"
SIZES: dict[str, tuple[int, int] | None] = {"80x24": (80, 24), "120x40": (120, 40), "plain": None}
TRAINED = "--size 8 --decoder mlp --depth 1 --steps 4 --samples 20 --device cpu"
REPRODUCED = "--set size=8 --set width=4 --set steps=3 --set samples=40 --processes 1 --device cpu --out report"
COMMANDS = {
    "train": f"train {TRAINED} --encoding bump --encoding rate --width 4 --width 8 --seeds 2",
    "runs_list": "runs list",
    "runs_list_where": "runs list --where encoding=='rate'and(width==8)and(seed==0)",
    "diagnose": "diagnose run:{key}",
    "reproduce": f"reproduce encodings {REPRODUCED}",
    "claims": "claims c1 --from report",
}
COLORS = re.compile(r"\x1b\[[0-9;]*m")
KEY = re.compile(r"\b[0-9a-f]{10}\b")
SECONDS = re.compile(r"\d+(\.\d+)? s\b")
TENTH = re.compile(r"^\d+ s: trained .*\n", re.MULTILINE)


def screens() -> Iterator[tuple[str, str]]:
    """Each screen's name and text, of commands in a fresh folder."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, words in COMMANDS.items():
            for size, shape in SIZES.items():
                if name == "reproduce":
                    shutil.rmtree("report", ignore_errors=True)  # measured again, so that it says so
                key = Store("runs", create=False).runs()[0].key if "{key}" in words else ""
                yield f"{name}_{size}", normalised(written(words.format(key=key).split(), shape))


def normalised(text: str) -> str:
    """The text without what differs from run to run: colours, keys, times."""
    plain = COLORS.sub("", text).replace("\r\n", "\n")
    plain = TENTH.sub("", plain)
    plain = SECONDS.sub("N s", KEY.sub("0123456789", plain))
    return "".join(line.rstrip() + "\n" for line in plain.splitlines())


def written(words: list[str], shape: tuple[int, int] | None) -> str:
    """What a command writes to a terminal of so many columns and lines, or, where there is none, to both streams."""
    leader, follower = pty.openpty() if shape else os.pipe()
    if shape:
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", shape[1], shape[0], 0, 0))
    parts: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(leader, parts))
    reader.start()
    with os.fdopen(follower, "w", encoding="utf-8") as stream, _terminal() as unseen:
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = stream, unseen if shape else stream  # the bar differs from moment to moment
        try:
            command(words)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{words} ended with {end.code}") from None
        finally:
            sys.stdout, sys.stderr = before
    reader.join()
    os.close(leader)
    return b"".join(parts).decode()


@contextlib.contextmanager
def _terminal() -> Iterator[Any]:
    """A terminal that nobody looks at."""
    leader, follower = pty.openpty()
    ignored = threading.Thread(target=_read_all, args=(leader, []))
    ignored.start()
    with os.fdopen(follower, "w") as stream:
        yield stream
    ignored.join()
    os.close(leader)


def _read_all(descriptor: int, parts: list[bytes]) -> None:
    with contextlib.suppress(OSError):  # how a terminal ends
        while part := os.read(descriptor, 4096):
            parts.append(part)


def golden(name: str) -> Path:
    """Where a screen is kept."""
    return FOLDER / f"{name}.txt"


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    os.environ.pop("RECOMBINE_STORE", None)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for screen, content in screens():
        golden(screen).write_text(content)
