"""Command-line flags made from the spec's own fields, so that none is ever missing.

Each flag may be given several times: the command trains every combination. A part with variants (encoding, hold-out,
training, decoder) is a text `name:field=value`, or a name with dotted flags (`--decoder cnn --decoder.width 16`).
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import Group, Parameter, Token
from pydantic.fields import FieldInfo

from recombine.cli.options import SHORT
from recombine.decoders import DECODERS
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue, listed, typed
from recombine.frozen import Variant
from recombine.holdouts import HOLDOUTS
from recombine.registry import Registry
from recombine.specs import Recipe, RunSpec
from recombine.tasks import TASKS, TRAINING_RULES, ArrayTask

SEPARATOR = "__"
PARTS: dict[str, Registry[Any]] = {
    "encoding": ENCODINGS, "holdout": HOLDOUTS, "training": TRAINING_RULES, "decoder": DECODERS,
}  # fmt: skip
MOST_SEEDS = 100_000
PANELS = {
    name: Group.create_ordered(name)
    for name in ("Task", "Decoder", "Recipe", "Fields of encodings, hold-outs and training sets")
}


@dataclass(frozen=True)
class Flag:
    """One flag: its dotted name, help and panel."""

    name: str
    help: str
    group: str
    switch: bool = False
    """True or false: given without a value, and not swept."""

    @property
    def python_name(self) -> str:
        """The name as a Python identifier."""
        return self.name.replace(".", SEPARATOR)

    def parameter(self) -> inspect.Parameter:
        """The flag as a parameter of a command."""
        long = "--" + self.name.replace("_", "-")
        names = [long, f"--{SHORT[self.name]}"] if self.name in SHORT else [long]
        described: dict[str, Any] = {
            "name": names,
            "help": self.help,
            "group": PANELS[self.group],
            "show_default": False,
        }
        several = Parameter(**described, negative=(), allow_leading_hyphen=True, converter=_by_one_name)
        kind: Any = Annotated[list[str] | None, several]
        if self.switch:
            kind = Annotated[bool | None, Parameter(**described)]
        return inspect.Parameter(self.python_name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _by_one_name(_: Any, tokens: Sequence[Token]) -> list[str]:
    """The values of a flag, which is to be called by one of its names only."""
    first = tokens[0].keyword
    for token in tokens:
        if token.keyword != first:
            raise InvalidValue(str(token.keyword), token.value, f"one name for a flag: {first} is the same one")
    return [token.value for token in tokens]


def spec_flags() -> list[Flag]:
    """Every field of a run's spec but the seed."""
    flags = [Flag("task", f"What is drawn: {listed(TASKS)}.", "Task")]
    switches = {name for cls in TASKS.values() for name, info in cls.model_fields.items() if info.annotation is bool}
    for name, texts in _fields(TASKS).items():
        flags.append(Flag(name, _help(name, texts), "Task", name in switches))
    flags.append(Flag("decoder", _help("decoder", [""]), "Decoder"))
    for part, registry in PARTS.items():
        panel = "Decoder" if part == "decoder" else "Fields of encodings, hold-outs and training sets"
        for name, texts in _fields(registry).items():
            flags.append(Flag(f"{part}.{name}", " ".join(texts), panel))
    for name, info in Recipe.model_fields.items():
        flags.append(Flag(name, _text(info), "Recipe"))
    return flags


def _help(name: str, texts: list[str]) -> str:
    choices = f"{listed(PARTS[name])}; with fields as NAME:FIELD=VALUE. " if name in PARTS else ""
    return choices + " ".join(texts)


def _fields(registry: Registry[Any]) -> dict[str, list[str]]:
    """The fields of all variants, each with a help line per distinct meaning.

    A field that the whole family shares is described once, as its base describes it.
    """
    shared = registry.base.model_fields
    kinds: dict[str, dict[str, list[str]]] = {}
    for kind, cls in registry.items():
        for name, info in cls.model_fields.items():
            if name != "kind":
                kinds.setdefault(name, {}).setdefault(_text(shared.get(name, info)), []).append(kind)
    return {name: _distinct_texts(texts, registry) for name, texts in kinds.items()}


def _distinct_texts(texts: dict[str, list[str]], registry: Registry[Any]) -> list[str]:
    """Each meaning once, with the kinds that have it where others differ."""
    if registry is TASKS and len(texts) == 1:
        return list(texts)
    return [f"{listed(kinds)}: {text}" for text, kinds in texts.items()]


def _text(info: FieldInfo) -> str:
    """The choices of a field, the docstring below it without markup, and its default if that is a plain value."""
    text = " ".join((info.description or "").replace("`", "").split())
    if get_origin(info.annotation) is Literal:
        text = f"{listed(get_args(info.annotation))}. {text}"
    plain = isinstance(info.default, (int, float, str, tuple)) and not isinstance(info.default, bool)
    return f"{text} Default: {typed(info.default)}.".strip() if plain and info.default != () else text


def with_spec_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `(flags, **own)` the spec's flags before its own keyword parameters."""
    flags = spec_flags()
    own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "flags"]

    def command(**values: Any) -> Any:
        by_flag = {f.name: values.pop(f.python_name, None) for f in flags}
        lists = {name: [str(value)] if isinstance(value, bool) else value for name, value in by_flag.items()}
        return function({name: value for name, value in lists.items() if value}, **values)

    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    parameters = [*(flag.parameter() for flag in flags), *own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def specs_from(flags: Mapping[str, list[str]], seeds: list[int]) -> list[RunSpec]:
    """A spec for every combination of the flags' values and every seed."""
    specs: list[RunSpec] = []
    tasks: dict[tuple[Any, ...], Any] = {}
    for choice in _combinations(flags):
        specs += _spec(choice, tasks).seeds(seeds)
    seen: set[str] = set()
    for spec in specs:
        if spec.digest in seen:
            raise InvalidValue("flags", _repeated(flags), "different values for a flag given several times")
        seen.add(spec.digest)
    return specs


def _combinations(flags: Mapping[str, list[str]]) -> Iterator[dict[str, str]]:
    for values in itertools.product(*flags.values()):
        yield dict(zip(flags, values, strict=True))


def _repeated(flags: Mapping[str, list[str]]) -> str:
    return " ".join(f"--{name} {value}" for name, values in flags.items() if len(values) > 1 for value in values)


def _spec(choice: Mapping[str, str], tasks: dict[tuple[Any, ...], Any]) -> RunSpec:
    """The spec of a choice; a task that another choice had is taken from `tasks`, as most time goes into making one."""
    defaults = {**{n: i.default for n, i in RunSpec.model_fields.items()}, **_task_defaults(choice)}
    parts: dict[str, Any] = {}
    for part, registry in PARTS.items():
        value = registry.parse(choice[part]) if part in choice else defaults[part]
        changed = {n.split(".")[1]: v for n, v in choice.items() if n.startswith(f"{part}.")}
        for name in changed:
            if name not in type(value).model_fields:
                fields = listed(n for n in type(value).model_fields if n != "kind")
                raise InvalidValue(f"{part}.{name}", changed[name], f"fields that {part} {value.kind!r} has: {fields}")
            if part in choice and name in value.model_fields_set:
                raise InvalidValue(f"{part}.{name}", changed[name], f"one value: --{part} {choice[part]} gives one too")
        parts[part] = _changed(part, value, changed) if changed else value
    task = {n: choice[n] for n in _fields(TASKS) if n in choice}
    task |= {n: parts[n] for n in ("encoding", "holdout", "training")}
    recipe = {n: choice[n] for n in Recipe.model_fields if n in choice}
    kind = _task_kind(choice)
    own = {name: name.replace("_", "-") for name in TASKS[kind].model_fields if name != "kind"}
    for name in task:
        if name not in own:
            raise InvalidValue(name, choice[name], f"fields that task {kind!r} has: {listed(own.values())}")
    same = (kind, *task.items())
    if same not in tasks:
        tasks[same] = TASKS[kind](**task)
    return RunSpec(task=tasks[same], decoder=parts["decoder"], recipe=Recipe(**recipe))


def _task_defaults(choice: Mapping[str, str]) -> dict[str, Any]:
    return {name: info.default for name, info in TASKS[_task_kind(choice)].model_fields.items()}


def _task_kind(choice: Mapping[str, str]) -> str:
    """The task that was named; where data are given, the one of data."""
    usual = ArrayTask.kind_name() if "data" in choice else RunSpec.model_fields["task"].default.kind
    return choice.get("task", usual)


def _changed(part: str, value: Variant, fields: Mapping[str, str]) -> Variant:
    try:
        return value.replace(**fields)
    except InvalidValue as error:
        raise InvalidValue(f"{part}.{error.field}", error.value, error.allowed) from None


def parse_seeds(words: list[str] | None) -> list[int]:
    """`8` is 0 … 7, `0..31` both ends included, `3,5,9` those; several are joined and may not overlap."""
    allowed = "a number of seeds (8), a range (0..31) or a list (3,5,9) of whole numbers from 0 on"
    seeds: list[int] = []
    for word in words or ["1"]:
        try:
            if ".." in word:
                first, last = (int(part) for part in word.split(".."))
                further = list(range(first, min(last, first + MOST_SEEDS) + 1))
            elif "," in word:
                further = [int(part) for part in word.split(",")]
            else:
                further = list(range(min(int(word), MOST_SEEDS + 1)))
        except ValueError:
            raise InvalidValue("seeds", word, allowed) from None
        if not further or min(further) < 0:
            raise InvalidValue("seeds", word, allowed)
        if len(further) > MOST_SEEDS:
            raise InvalidValue("seeds", word, f"{MOST_SEEDS} seeds at most")
        seeds += further
    if len(set(seeds)) < len(seeds):
        twice = sorted(seed for seed, count in Counter(seeds).items() if count > 1)[:3]
        raise InvalidValue("seeds", " ".join(words or []), f"seeds that do not overlap ({listed(twice)} comes twice)")
    return seeds
