"""Frozen, validated records with a digest, and registries of interchangeable record classes.

Everything a result depends on is a field of a record. The digest includes defaults, so it changes if a default changes.
A field added after records of its kind were first stored is marked `ADDED`: it is omitted from the JSON while it has
its default value, so that older records keep their digest. Its default can never change, and it cannot be set by
position in text such as `name:3`.

The docstring below a field is the help text of its flag, and is added to the Parameters section of its class.

Each family of interchangeable classes (encodings, hold-outs, decoders, …) has a registry. A registered class can be
used in specs (by name, as text such as `mine:width=3`, or as JSON) and is listed in messages and on the command line.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer, model_validator
from pydantic.fields import FieldInfo

from recombine.errors import InvalidValue, from_pydantic, listed, typed
from recombine.files import parsed_json
from recombine.keys import canonical_json, json_digest

ADDED = "added after records of its kind were first stored"
"""Marker for a field, as in `Annotated[int, ADDED] = 1`."""
OPENING = ContextVar("OPENING", default=False)
"""Whether a stored record is being opened, to which checks added later do not apply."""


class Frozen(BaseModel):
    """An immutable record; invalid fields raise `InvalidValue`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.__doc__ = with_parameters(cls.__dict__.get("__doc__") or "", cls.model_fields)

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise from_pydantic(error, type(self).model_fields) from None

    @model_serializer(mode="wrap")
    def _without_added_defaults(self, written: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        fields = written(self)
        if isinstance(self, Variant) and self.version:
            fields["version"] = self.version
        for name, default in added_defaults(type(self)).items():
            if getattr(self, name) == default:
                fields.pop(name, None)
        return fields

    def to_json(self) -> str:
        """Return canonical JSON with sorted names, no whitespace and all defaults written out."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the record from JSON written by `to_json`."""
        try:
            fields = parsed_json(text)
        except (ValueError, TypeError):
            raise InvalidValue(cls.__name__, text, "JSON") from None
        if not isinstance(fields, dict):
            raise InvalidValue(cls.__name__, text, "a JSON object with named fields")
        opening = OPENING.set(True)
        try:
            return cls(**cls.from_stored(fields))
        finally:
            OPENING.reset(opening)

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a stored record under their current names."""
        return fields

    @property
    def digest(self) -> str:
        """Digest of all fields."""
        return json_digest(self.model_dump(mode="json"))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Frozen) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.digest)

    def replace(self, /, **fields: Any) -> Self:
        """Return a validated copy with some fields changed."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **fields})


OWN_SECTION = "Parameters\n----------\n"
NEXT_SECTION = re.compile(r"^(?=(?:Examples|Notes|References|See Also)\n-+\n)", re.MULTILINE)


def with_parameters(text: str, fields: Mapping[str, FieldInfo]) -> str:
    """Return a class's docstring, adding to its Parameters section all fields that are not described there."""
    head, *rest = NEXT_SECTION.split(inspect.cleandoc(text), maxsplit=1)
    summary, _, described = head.rstrip().partition(OWN_SECTION)
    there = re.findall(r"^(\w+)", described, re.MULTILINE)
    entries = [described]
    for name, info in fields.items():
        if name not in {"kind", *there}:
            default = str(info.default) if isinstance(info.default, Variant) else info.default
            text = f"{type(default).__name__}()" if isinstance(default, Frozen) else repr(default)
            kind = _type_text(info.annotation) + ("" if info.is_required() else f", default {text}")
            entries.append(f"{name} : {kind}\n    {' '.join((info.description or '').split())}")
    section = "\n".join(filter(None, entries))
    return "\n\n".join(part for part in (summary.rstrip(), OWN_SECTION + section if section else "", *rest) if part)


def _type_text(annotation: Any) -> str:
    """Return a field's type for its documentation: `int`, `'kept' or 'whole'`, `float or None`."""
    kinds: list[str] = []
    for kind in _kinds(annotation):
        if get_origin(kind) is Literal:
            kinds += [repr(choice) for choice in get_args(kind)]
        else:
            kinds.append("None" if kind is types.NoneType else getattr(get_origin(kind) or kind, "__name__", str(kind)))
    return " or ".join(dict.fromkeys(kinds))


@cache
def added_defaults(cls: type[Frozen]) -> dict[str, Any]:
    """Return the defaults of the fields marked `ADDED`."""
    return {name: info.default for name, info in cls.model_fields.items() if ADDED in info.metadata}


class Variant(Frozen):
    """Base class of the members of a family (encodings, hold-outs, …), identified by `kind`.

    A subclass defines `kind: Literal["name"] = "name"` first, then its fields. If its code changes so that old results
    no longer hold, it sets a new `version`, which is part of a run's key.
    """

    version: ClassVar[int] = 0
    kind: str

    @classmethod
    def from_text(cls, parts: list[str]) -> Self:
        """Parse the parts of `name:part:part`; each is `field=value`, or a value for the next field in order."""
        names = [name for name in cls.model_fields if name not in {"kind", *added_defaults(cls)}]
        fields: dict[str, str] = {}
        for position, part in enumerate(text_pieces(parts)):
            name, equals, value = part.partition("=")
            if not equals:
                if position >= len(names):
                    fewer = f"at most {len(names)} values ({listed(names)})" if names else "left without values"
                    raise InvalidValue(cls.kind_name(), part, fewer)
                name, value = names[position], part
            if name in fields:
                raise InvalidValue(f"{cls.kind_name()}.{name}", value, "given once")
            fields[name] = value[1:-1] if value.startswith("(") and value.endswith(")") else value
        return cls(**fields)

    @model_validator(mode="before")
    @classmethod
    def _read_texts(cls, fields: Any) -> Any:
        """Convert `none` and lists, which are given as text in flags, according to the type of the field."""
        if not isinstance(fields, dict):
            return fields
        known = cls.model_fields
        return {
            name: _read(value, known[name].annotation) if isinstance(value, str) and name in known else value
            for name, value in fields.items()
        }

    @classmethod
    def kind_name(cls) -> str:
        """Return the value of `kind` for this class."""
        return str(cls.model_fields["kind"].default)

    def __str__(self) -> str:
        """Return the record as `name:field=value` without defaults, a form that the registry can parse."""
        changed = [
            f"{name}={typed(value)}"
            for name, info in type(self).model_fields.items()
            if name != "kind" and (value := getattr(self, name)) != info.default
        ]
        return ":".join([self.kind, *changed])


def text_pieces(parts: list[str]) -> list[str]:
    """Rejoin parts of text that was split at colons inside parentheses."""
    pieces: list[str] = []
    for part in parts:
        if pieces and pieces[-1].count("(") > pieces[-1].count(")"):
            pieces[-1] += f":{part}"
        else:
            pieces.append(part)
    return pieces


def _read(text: str, annotation: Any) -> Any:
    """Convert `none` and lists according to the annotation; everything else is left to pydantic."""
    kinds = list(_kinds(annotation))
    if text == "none" and types.NoneType in kinds and str not in kinds:
        return None
    lists = [kind for kind in kinds if get_origin(kind) is tuple]
    if not lists:
        return text
    item = get_args(lists[0])[0]
    nested = any(get_origin(kind) is tuple for kind in _kinds(item))
    separator = ";" if nested else ","
    alone = not {*kinds} - {*lists, types.NoneType}  # otherwise, text without a separator is a single value
    if not (alone or separator in text):
        return text
    parts = text.removesuffix(separator).split(separator) if text else []
    return tuple(_read(part, item) if part else part for part in parts)


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, or the type itself."""
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for choice in get_args(annotation):
            yield from _kinds(choice)
    else:
        yield annotation


V = TypeVar("V", bound=Variant)


class Registry(dict[str, type[V]], Generic[V]):
    """The classes of one family, by name."""

    def __init__(self, field: str, base: type[V]) -> None:
        super().__init__()
        self.field, self.base = field, base

    def __missing__(self, name: str) -> type[V]:
        raise InvalidValue(self.field, name, f"one of {listed(self)} (or a user-defined class, with --import MODULE)")

    def register(self, cls: type[V]) -> type[V]:
        """Register a class under its `kind`; can be used as a class decorator."""
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            raise InvalidValue(self.field, cls, f"a subclass of {self.base.__name__}")
        if self.get(cls.kind_name(), cls) is not cls:
            raise InvalidValue(self.field, cls.kind_name(), "a name that is not in use")
        if missing := sorted(cls.__abstractmethods__):
            raise InvalidValue(self.field, cls.__name__, f"a class that defines {listed(missing)}")
        self[cls.kind_name()] = cls
        return cls

    def unregister(self, name: str) -> None:
        """Remove a class from the registry."""
        del self[name]

    def parse(self, value: Any) -> V:
        """Return an instance, given an instance, text (`name:…`) or a mapping with `kind`."""
        if isinstance(value, self.base):
            return value
        try:
            if isinstance(value, str):
                name, *parts = value.split(":")
                cls = self[name]
                if "" in text_pieces(parts):
                    raise InvalidValue(self.field, value, f"{name}, or {name}:FIELD=VALUE without empty fields")
                return cls.from_text(parts)
            if isinstance(value, Mapping) and all(isinstance(name, str) for name in (value.get("kind"), *value)):
                cls = self[value["kind"]]
                if (version := value.get("version", cls.version)) != cls.version:
                    raise InvalidValue("version", version, f"{cls.version}, the version of {cls.__name__}")
                return cls(**{name: field for name, field in value.items() if name != "version"})
        except InvalidValue as error:
            if error.field.split(".")[0] == self.field:
                raise
            raise InvalidValue(f"{self.field}.{error.field}", error.value, error.allowed) from None
        raise InvalidValue(self.field, value, f"one of {listed(self)}")
