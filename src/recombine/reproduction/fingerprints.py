"""What a Dataset depends on, as one fingerprint: the same exactly when it need not be measured again.

- the runs: their keys and what training came to (keys cover specs and the revision of the training code);
- the settings of the preset that its study reads, and the optional tools that are installed;
- the code that measures, as declared versions: of the study, of each metric that it uses, and of the scores of a run.

Versions are declared, not hashed from source text, so that a comment or another study's edit stales nothing. Raise the
version when what is measured changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from recombine.errors import StoreError
from recombine.metrics.versions import metric_versions
from recombine.reproduction.study import Study
from recombine.store import Run
from recombine.store.run import ARRAYS, WEIGHTS
from recombine.training.evaluate import SCORES_VERSION

LENGTH = 20
"""Hexadecimal digits of a fingerprint."""


def content_digest(run: Run) -> str:
    """What training came to, from the digests that the store keeps: weights, arrays, and whether it diverged."""
    try:
        digests = run.digests()
    except ValueError as error:  # since it was served
        raise StoreError(f"store must be one whose runs are whole, got {str(run.path)!r} ({error})") from None
    return f"{digests[WEIGHTS]} {digests[ARRAYS]} {run.status}"


def versions(study: Study[Any]) -> dict[str, int]:
    """Declared versions of the code that a study's Dataset is measured by."""
    return {
        "study": study.version,
        "scores": SCORES_VERSION,
        **metric_versions(study.metrics),
    }


def dataset_fingerprint(
    study: str,
    runs: Mapping[str, str],
    settings: Mapping[str, Any],
    versions: Mapping[str, int],
    optional_tools: Iterable[str] = (),
) -> str:
    """The fingerprint of all that a study's Dataset depends on.

    Parameters
    ----------
    study
        Name of the study.
    runs
        By the key of each run, a digest of its content.
    settings
        The fields of the preset that the study reads, as plain data.
    versions
        Declared versions of the code that measures.
    optional_tools
        Optional tools that are installed and make a difference.

    Returns
    -------
    str
        Hexadecimal digits.
    """
    text = json.dumps([study, runs, settings, versions, sorted(optional_tools)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
