"""What a Dataset answers: the digest of the runs, the preset and the code that it was measured on, with and by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from recombine.errors import StoreError
from recombine.store import Run
from recombine.store.run import ARRAYS, WEIGHTS

MEASURING = ("metrics", "studies", "tasks", "decoders", "encodings.py", "holdouts", "factors.py")
"""Code that a Dataset depends on. What trains is left out: its outcome is."""


@cache
def source_digest() -> str:
    """Digest of the code that measures: metrics and studies, and what they read codes, images and regions from."""
    digest = hashlib.sha256()
    for part in MEASURING:
        place = files("recombine").joinpath(part)
        for path in [place] if place.is_file() else sorted(place.iterdir(), key=lambda path: path.name):
            if path.name.endswith(".py"):
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def content_digest(run: Run) -> str:
    """What training came to, from the digests that the store keeps: weights, arrays, and whether it diverged."""
    try:
        digests = run.digests()
    except ValueError as error:  # since it was served
        raise StoreError(f"store: {str(run.path)!r} is not allowed; allowed: a run that is whole ({error})") from None
    return f"{digests[WEIGHTS]} {digests[ARRAYS]} {run.status}"


def dataset_fingerprint(study: str, runs: Mapping[str, str], settings: str, optional_tools: Iterable[str] = ()) -> str:
    """Digest of all that a study's Dataset depends on.

    Runs by key with a digest of what each came to, the preset as JSON, optional tools that are installed, and the code.
    """
    text = json.dumps([study, sorted(runs.items()), settings, sorted(optional_tools), source_digest()])
    return hashlib.sha256(text.encode()).hexdigest()[:20]
