"""Keys of runs: digests of a spec and of the revision of the training code, the same in every edition of a store.

A key is made with the names that fields had when keys were first made; a spec is read and written with today's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGEST_LENGTH = 20
"""Hexadecimal digits of an identity: 80 bits, no collision among any number of runs one can train."""
REVISION = 5
"""Of the training code: raised when it changes what a spec trains to, so that old runs are not served for it."""
FIRST_NAMES = {"beta1": "mean_decay", "beta2": "square_decay"}
"""Fields of a recipe that had other names when keys were first made."""
_PRESENT_NAMES = {first: name for name, first in FIRST_NAMES.items()}


def canonical_json(fields: Mapping[str, Any]) -> str:
    """JSON with sorted names and no white space."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)


def json_digest(fields: Mapping[str, Any]) -> str:
    """The identity of plain data, whatever the order of its names."""
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()[:DIGEST_LENGTH]


def stored_key(fields: Mapping[str, Any]) -> str:
    """The key of a run, from its spec and revision as a store of any edition keeps them."""
    return json_digest(_with_names(fields, FIRST_NAMES))


def with_present_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A stored spec and revision, of any edition, with the names that fields have now."""
    return _with_names(fields, _PRESENT_NAMES)


def _with_names(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    recipe = fields.get("recipe")
    if not isinstance(recipe, dict):
        return dict(fields)
    return {**fields, "recipe": {names.get(name, name): value for name, value in recipe.items()}}
