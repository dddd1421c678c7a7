"""Presets: records with all settings of a reproduction.

A study declares its settings in a subclass of `Preset`, with their defaults and their values in other presets. A
paper's preset combines the settings of all its studies under flat names (`recombine reproduce --set width=8`). A
study's Dataset depends only on the settings declared in its subclass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, create_model

from recombine.errors import InvalidValue, listed, nearest
from recombine.records import Frozen
from recombine.specs import Precision, Recipe

Count = Annotated[int, Field(ge=0, le=10**9)]
Seeds = Annotated[int, Field(ge=1, le=100_000)]
Positive = Annotated[float, Field(gt=0)]


def _split(value: Any) -> Any:
    """Split a comma-separated string; an empty string gives an empty list."""
    return tuple(part for part in value.split(",") if value) if isinstance(value, str) else value


AnyNumber = Annotated[tuple[Count, ...], BeforeValidator(_split)]
Several = Annotated[AnyNumber, Field(min_length=1)]


class Preset(Frozen):
    """The settings shared by all studies; subclasses add study-specific ones."""

    name: str
    """Name of the preset, for `--preset`."""
    seeds: Seeds
    """Number of seeds per condition for judging claims."""
    extra_seeds: Seeds
    """Number of seeds for conditions that no claim depends on; at most `seeds`."""
    first_seed: Count
    """The first seed."""
    precision: Precision
    """Numerical precision of training; measurements are always in float32."""

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Fields of this class that differ from the defaults, for each other preset by name."""

    @classmethod
    def presets(cls) -> dict[str, Self]:
        """Return all presets by name: the variants declared by this class and its bases, then the defaults."""
        values: dict[str, dict[str, Any]] = {}
        for part in reversed(cls.__mro__):  # the most general first
            for name, fields in vars(part).get("variants", {}).items():
                values.setdefault(name, {"name": name}).update(fields)
        default = cls(**{name: field.default for name, field in cls.model_fields.items()})
        return {**{name: cls(**own) for name, own in values.items()}, default.name: default}

    def recipe(self, **fields: Any) -> Recipe:
        """Return a recipe with this preset's precision unless another is given."""
        return Recipe(**{"precision": self.precision, **fields})

    def changed(self, changes: Sequence[str]) -> Self:
        """Return the preset with some fields changed, each given as `name=value`."""
        fields: dict[str, Any] = {}
        for change in changes:
            name, equals, value = change.partition("=")
            known = [field for field in type(self).model_fields if field != "name"]
            if name not in known or not equals:
                close = nearest(name, known)
                names = f"perhaps {close} ('--set all' lists all)" if close else f"with NAME one of {listed(known)}"
                raise InvalidValue("set", change, f"NAME=VALUE, {names}")
            fields[name] = value
        return self.replace(**fields) if fields else self


ASSEMBLED = """The settings of a reproduction, combined from all its studies.

On the command line, `recombine reproduce --set NAME=VALUE` changes one of them.

Examples
--------
>>> import recombine as rc
>>> preset = rc.PRESETS["quick"].replace(seeds=8)
>>> preset.name, preset.seeds
('quick', 8)
"""


def assembled(settings: Iterable[type[Preset]], module: str) -> type[Preset]:
    """Return a `Preset` class in the given module that combines the fields of all these classes."""
    classes = list(dict.fromkeys(settings))
    bases = [own for own in classes if not any(other is not own and issubclass(other, own) for other in classes)]
    return create_model("Preset", __base__=tuple(bases), __module__=module, __doc__=ASSEMBLED)
