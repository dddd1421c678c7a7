"""Keys of runs: digests of a spec and the revision of the training code.

Keys use the original names of renamed fields, so that they never change; specs use the current names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGEST_LENGTH = 20
"""Number of hexadecimal digits in a key: 80 bits, enough to rule out collisions."""
REVISION = 5
"""Revision of the training code; increase it when training results change, so that old runs are not reused."""
FIRST_NAMES = {"beta1": "mean_decay", "beta2": "square_decay"}
"""Original names of renamed recipe fields."""
FIRST_PENALTIES = ("entropy", "variance")
"""Penalties whose weights are stored with the recipe, as they were before there were others."""
_PRESENT_NAMES = {first: name for name, first in FIRST_NAMES.items()}


def canonical_json(fields: Mapping[str, Any]) -> str:
    """Return JSON with sorted names and no whitespace."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)


def json_digest(fields: Mapping[str, Any]) -> str:
    """Return a digest of JSON data that does not depend on the order of keys."""
    return hashlib.sha256(canonical_json(fields).encode()).hexdigest()[:DIGEST_LENGTH]


def stored_key(fields: Mapping[str, Any]) -> str:
    """Return the key of a run, given its stored spec and revision with original or current names."""
    return json_digest(_with_names(fields, FIRST_NAMES))


def with_present_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored spec and revision with current field names."""
    return _with_names(fields, _PRESENT_NAMES)


def with_penalties(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored spec with all penalties in one list."""
    recipe = fields.get("recipe")
    if not isinstance(recipe, dict):
        return dict(fields)
    first = [{"kind": kind, "weight": recipe[kind]} for kind in FIRST_PENALTIES if recipe.get(kind)]
    recipe = {name: value for name, value in recipe.items() if name not in FIRST_PENALTIES}
    return {**fields, "recipe": recipe, "penalties": [*first, *fields.get("penalties", ())]}


def _with_names(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    recipe = fields.get("recipe")
    if not isinstance(recipe, dict):
        return dict(fields)
    return {**fields, "recipe": {names.get(name, name): value for name, value in recipe.items()}}
