"""Frozen, validated records that hash to an identity.

Everything a result depends on is a field of such a record, defaults included, so that a changed default changes
the identity. Records go through JSON unchanged.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from recombine.errors import InvalidValue, from_pydantic, reason_of, shown
from recombine.files import parsed_json

DIGEST_LENGTH = 20
"""Hexadecimal digits of an identity: 80 bits, no collision among any number of runs one can train."""


class Frozen(BaseModel):
    """A record whose fields never change and whose every mistake is one line."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise from_pydantic(error, type(self).model_fields) from None
        except TypeError as error:  # a mapping in the place of a record, with names that are no texts
            raise InvalidValue(type(self).__name__, fields, f"fields that are records ({reason_of(error)})") from error

    def to_json(self) -> str:
        """The record as canonical JSON: sorted names, no white space, all defaults written out."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record that `to_json` wrote."""
        try:
            fields = parsed_json(text)
        except (ValueError, TypeError):
            raise InvalidValue(cls.__name__, text, "JSON") from None
        if not isinstance(fields, dict):
            raise InvalidValue(cls.__name__, text, "a JSON object with named fields")
        return cls(**fields)

    @property
    def digest(self) -> str:
        """The identity: equal exactly when every field is equal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:DIGEST_LENGTH]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Frozen) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.digest)

    def replace(self, /, **fields: Any) -> Self:
        """A copy with some fields changed, validated anew."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **fields})


class Variant(Frozen):
    """One member of a family (an encoding, a hold-out, …), told apart by `kind`.

    A subclass states `kind: Literal["name"] = "name"` first and its own fields after it.
    """

    kind: str

    @classmethod
    def from_text(cls, parts: list[str]) -> Self:
        """From the pieces of `name:piece:piece`, each a value in field order or `field=value`."""
        names = [name for name in cls.model_fields if name != "kind"]
        fields: dict[str, str] = {}
        for position, part in enumerate(parts):
            name, equals, value = part.partition("=")
            if not equals:
                if position >= len(names):
                    takes = f"{len(names)} at most ({', '.join(names)})" if names else "none"
                    raise InvalidValue(cls.kind_name(), part, f"as many values as it has fields: {takes}")
                name, value = names[position], part
            if name in fields:
                raise InvalidValue(f"{cls.kind_name()}.{name}", value, "one value")
            fields[name] = value
        return cls(**fields)

    @classmethod
    def kind_name(cls) -> str:
        """The value of `kind` that selects this class."""
        return str(cls.model_fields["kind"].default)

    def __str__(self) -> str:
        """Short text, `name:field=value`, with the fields that differ from their defaults."""
        changed = [
            f"{name}={value if isinstance(value, (int, float, str)) else shown(value)}"
            for name, info in type(self).model_fields.items()
            if name != "kind" and (value := getattr(self, name)) != info.default
        ]
        return ":".join([self.kind, *changed])
