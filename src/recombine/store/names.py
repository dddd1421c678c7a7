"""The names that this package makes in a store; nothing else there is ever deleted."""

from __future__ import annotations

import re

from recombine.keys import DIGEST_LENGTH

MARKER = "recombine.json"
INDEX = "index.sqlite"
FOLDERS = ("runs", "checkpoints", "locks", "damaged", "tmp")
STORE_LOCK = "store"
"""Lock of those who change what belongs to no single run."""

_KEY = rf"[0-9a-f]{{{DIGEST_LENGTH}}}"
_LEFT = {
    "tmp": re.compile(rf"(?P<key>{_KEY})\.(gone\.)?\d+"),
    "damaged": re.compile(rf"(?P<key>{_KEY})\.\d+"),
    "checkpoints": re.compile(rf"(?P<dot>\.)?(?P<key>{_KEY})(?(dot)\.\d+(-[0-9a-f]+)?)"),
    "locks": re.compile(rf"(?P<key>{_KEY}|{STORE_LOCK})"),
}
_OLD_CHECKPOINT = re.compile(rf"{_KEY}\.[0-9a-f]{{64}}")
_is_key = re.compile(_KEY).fullmatch


def is_key(name: str) -> bool:
    """Whether a name is the key of a run."""
    return _is_key(name) is not None


def key_of(folder: str, name: str) -> str | None:
    """The run that an entry of a folder was made for; none for a name that this package does not make."""
    match = _LEFT[folder].fullmatch(name)
    return match["key"] if match else None


def is_old_checkpoint(name: str) -> bool:
    """Whether a name is that of a checkpoint of the first version, which was not bound to its run."""
    return _OLD_CHECKPOINT.fullmatch(name) is not None
