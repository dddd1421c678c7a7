"""Presets: every number that the size of a reproduction depends on, in one record.

A study declares its own settings as a subclass of `Preset`, defaults and the values of other presets included; a
paper's preset is put together from those of all its studies, with flat names (`recombine reproduce --set width=8`).
What a study reads is therefore what its class declares, and its Dataset depends on nothing else of the preset.
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
    """A list written as text; no text is an empty list."""
    return tuple(part for part in value.split(",") if value) if isinstance(value, str) else value


AnyNumber = Annotated[tuple[Count, ...], BeforeValidator(_split)]
Several = Annotated[AnyNumber, Field(min_length=1)]


class Preset(Frozen):
    """The settings that every study has; subclasses add their own."""

    name: str
    """What it is called, as `--preset` takes it."""
    seeds: Seeds
    """Seeds where a claim is judged."""
    extra_seeds: Seeds
    """Seeds of extras that no claim rests on; never more than `seeds`."""
    first_seed: Count
    """The first of the seeds."""
    precision: Precision
    """Arithmetic of training; measurements are always in float32."""

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """By the name of another preset, its values of the fields that this class adds; the rest are defaults."""

    @classmethod
    def presets(cls) -> dict[str, Self]:
        """Every preset by name: those that this class and the classes it is made of declare, then the defaults."""
        values: dict[str, dict[str, Any]] = {}
        for part in reversed(cls.__mro__):  # the most general first
            for name, fields in vars(part).get("variants", {}).items():
                values.setdefault(name, {"name": name}).update(fields)
        default = cls(**{name: field.default for name, field in cls.model_fields.items()})
        return {**{name: cls(**own) for name, own in values.items()}, default.name: default}

    def recipe(self, **fields: Any) -> Recipe:
        """A recipe, in this preset's precision unless another is given."""
        return Recipe(**{"precision": self.precision, **fields})

    def changed(self, changes: Sequence[str]) -> Self:
        """The preset with some fields set, each given as `name=value`."""
        fields: dict[str, Any] = {}
        for change in changes:
            name, equals, value = change.partition("=")
            known = [field for field in type(self).model_fields if field != "name"]
            if name not in known or not equals:
                close = nearest(name, known)
                names = f"perhaps {close} ('--set all' lists all)" if close else f"NAME one of {listed(known)}"
                raise InvalidValue("set", change, f"NAME=VALUE, {names}")
            fields[name] = value
        return self.replace(**fields) if fields else self


ASSEMBLED = """The settings of a reproduction, those of all its studies together.

On the command line, `recombine reproduce --set NAME=VALUE` changes one.

Examples
--------
>>> import recombine as rc
>>> preset = rc.PRESETS["quick"].replace(seeds=8)
>>> preset.name, preset.seeds
('quick', 8)
"""


def assembled(settings: Iterable[type[Preset]], module: str) -> type[Preset]:
    """A preset with the fields of all these, for a module that calls it `Preset`."""
    classes = list(dict.fromkeys(settings))
    bases = [own for own in classes if not any(other is not own and issubclass(other, own) for other in classes)]
    return create_model("Preset", __base__=tuple(bases), __module__=module, __doc__=ASSEMBLED)
