"""Specs of a sweep, from the flags of `recombine train` or from a TOML, YAML or JSON file that uses the same names.

Flags are generated from the fields of specs. A sweep contains every combination of repeated flags. An encoding,
hold-out, training set or decoder is written as `name:field=value`, or with dotted flags (`--decoder.width 16`).
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import Group, Parameter
from pydantic.fields import FieldInfo

from recombine.cli.options import MORE
from recombine.decoders import DECODERS
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue, RecombineError, listed, nearest, typed
from recombine.files import parsed_json, read_given
from recombine.holdouts import HOLDOUTS
from recombine.records import Registry
from recombine.remedies import REMEDIES
from recombine.specs import Recipe, RunSpec
from recombine.tasks import TASKS, TRAINING_RULES, ArrayTask

PARTS: dict[str, Registry[Any]] = {
    "encoding": ENCODINGS, "holdout": HOLDOUTS, "training": TRAINING_RULES, "decoder": DECODERS,
}  # fmt: skip
SHORT = {"decoder.width": "width", "decoder.depth": "depth", "training.samples": "samples"}
"""Short names of common dotted flags."""
COMMON = {
    "task", "size", "data", "encoding", "holdout", "training", "training.samples", "isolated", "decoder",
    "decoder.width", "decoder.depth", "remedy", "seeds", "epochs", "steps", "batch", "lr", "weight_decay", "precision",
}  # fmt: skip
"""Flags shown by --help; --help-all also shows the others."""
PANELS = {
    name: Group.create_ordered(name)
    for name in (
        "Task", "Decoder", "Recipe", f"{MORE} task", f"{MORE} decoder", f"{MORE} recipe",
        f"{MORE} fields of encodings, hold-outs and training sets",
    )
}  # fmt: skip
SEEDS = "Seeds: a count (8), a range (0..31) or a list (3,5,9)."
MOST_SEEDS = 100_000
MOST_RUNS = 1_000_000


@dataclass(frozen=True)
class Flag:
    """A flag with its dotted name, help text and panel."""

    name: str
    help: str
    panel: str
    switch: bool = False
    """Whether the flag is boolean, and so takes no value and cannot be swept."""

    @property
    def python_name(self) -> str:
        """The name as a Python identifier."""
        return self.name.replace(".", "__")

    def parameter(self) -> inspect.Parameter:
        """Return the flag as a parameter of a command."""
        long = "--" + self.name.replace("_", "-")
        names = [long, f"--{SHORT[self.name]}"] if self.name in SHORT else [long]
        panel = self.panel if self.name in COMMON else f"{MORE} {self.panel.lower()}"
        common: dict[str, Any] = {"name": names, "help": self.help, "group": PANELS[panel], "show_default": False}
        kind: Any = Annotated[bool | None, Parameter(**common)]
        if not self.switch:
            kind = Annotated[list[str] | None, Parameter(**common, allow_leading_hyphen=True)]
        return inspect.Parameter(self.python_name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def spec_flags() -> list[Flag]:
    """Return a flag for every field of a run's spec, and one for the seeds."""
    flags = [Flag("task", f"Task. Choices: {listed(TASKS)}.", "Task")]
    switches = {name for cls in TASKS.values() for name, info in cls.model_fields.items() if info.annotation is bool}
    for name, texts in _fields(TASKS).items():
        flags.append(Flag(name, " ".join(texts) + _choices(name), "Task", name in switches))
    flags.append(Flag("decoder", f"Architecture.{_choices('decoder')}", "Decoder"))
    for part, registry in PARTS.items():
        for name, texts in _fields(registry).items():
            full = f"{part}.{name}"
            panel = "Task" if full in COMMON else "Fields of encodings, hold-outs and training sets"
            flags.append(Flag(full, " ".join(texts), "Decoder" if part == "decoder" else panel))
    flags.append(Flag("remedy", listed(REMEDIES), "Recipe"))
    flags.append(Flag("seeds", SEEDS, "Recipe"))
    for name, info in Recipe.model_fields.items():
        flags.append(Flag(name, _text(info), "Recipe"))
    return flags


def with_spec_flags(
    command: Callable[..., None], seeds: str = "1", remedies: str = "join several with +"
) -> Callable[..., None]:
    """Make the flags of specs parameters of a command with `**values`; cyclopts reads its signature and annotations."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "values"]
    more = {"seeds": f" Default: {seeds}.", "remedy": f"; {remedies}."}
    flags = [replace(flag, help=flag.help + more.get(flag.name, "")) for flag in spec_flags()]
    parameters = [*own, *(flag.parameter() for flag in flags)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def given_flags(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the flags of specs that a command was given."""
    given = {flag.name: values.get(flag.python_name) for flag in spec_flags()}
    return {name: [str(v)] if isinstance(v, bool) else v for name, v in given.items() if v not in (None, [])}


def base_from(flags: Mapping[str, list[str]]) -> RunSpec:
    """Return the one spec that flags give."""
    bases = specs_from(flags)
    if len(bases) != 1:
        raise InvalidValue("base", f"{len(bases)} specs", "one spec: every flag but --remedy is given once")
    return bases[0]


def _choices(name: str) -> str:
    return f" Choices: {listed(PARTS[name])}; fields by NAME:FIELD=VALUE." if name in PARTS else ""


def _fields(registry: Registry[Any]) -> dict[str, list[str]]:
    """Return the fields of all registered classes, each with one help text per distinct meaning."""
    shared = registry.base.model_fields  # described once, by the docstrings of the base class
    kinds: dict[str, dict[str, list[str]]] = {}
    for kind, cls in registry.items():
        for name, info in cls.model_fields.items():
            if name != "kind":
                kinds.setdefault(name, {}).setdefault(_text(shared.get(name, info)), []).append(kind)
    return {
        name: list(texts)
        if registry is TASKS and len(texts) == 1
        else [f"{listed(have)}: {text}" for text, have in texts.items()]
        for name, texts in kinds.items()
    }


def _text(info: FieldInfo) -> str:
    """Return a field's docstring without markup, its choices, and its default if that is a plain value."""
    text = " ".join((info.description or "").replace("`", "").split())
    choices = [str(choice) for choice in get_args(info.annotation)] if get_origin(info.annotation) is Literal else []
    if not all(choice in text for choice in choices):
        text = f"{text} Choices: {listed(choices)}."
    plain = isinstance(info.default, (int, float, str, tuple)) and not isinstance(info.default, bool)
    return f"{text} Default: {typed(info.default)}.".strip() if plain and info.default != () else text


def specs_from(flags: Mapping[str, list[str]]) -> list[RunSpec]:
    """Return a spec for every combination of the flags' values and every seed, without duplicates."""
    swept = {name: values for name, values in flags.items() if name != "seeds"}
    seeds = parse_seeds(flags.get("seeds"))
    count = math.prod(len(values) for values in swept.values()) * len(seeds)
    if count > MOST_RUNS:
        raise InvalidValue("sweep", f"{count} runs", f"at most {MOST_RUNS} runs")
    specs: dict[str, RunSpec] = {}
    tasks: dict[tuple[Any, ...], Any] = {}
    for values in itertools.product(*swept.values()):
        choice = dict(zip(swept, values, strict=True))
        specs |= {spec.digest: spec for spec in _spec(choice, tasks).seeds(seeds)}
    return list(specs.values())


def _spec(choice: Mapping[str, str], tasks: dict[tuple[Any, ...], Any]) -> RunSpec:
    """Return the spec for one combination of values; `tasks` caches tasks, which are slow to create."""
    default = ArrayTask.kind_name() if "data" in choice else RunSpec.model_fields["task"].default.kind
    kind = choice.get("task", default)
    fields = {**RunSpec.model_fields, **TASKS[kind].model_fields}
    parts = {part: _part(part, choice, fields[part].default) for part in PARTS}
    task = {name: choice[name] for name in _fields(TASKS) if name in choice}
    task |= {name: parts[name] for name in ("encoding", "holdout", "training")}
    same = (kind, *task.items())
    if same not in tasks:
        tasks[same] = TASKS[kind](**task)
    recipe = Recipe(**{name: choice[name] for name in Recipe.model_fields if name in choice})
    spec = RunSpec(task=tasks[same], decoder=parts["decoder"], recipe=recipe)
    for remedy in re.split(r"\+(?!\d)", choice["remedy"]) if "remedy" in choice else ():  # not at the plus of 1e+3
        spec = spec.with_remedy(remedy)
    return spec


def _part(part: str, choice: Mapping[str, str], default: Any) -> Any:
    """Return an encoding, hold-out, training rule or decoder, with the fields set by dotted flags."""
    value = PARTS[part].parse(choice[part]) if part in choice else default
    changed = {name.split(".")[1]: text for name, text in choice.items() if name.startswith(f"{part}.")}
    if not changed:
        return value
    if part in choice and (twice := value.model_fields_set & set(changed)):
        raise InvalidValue(f"{part}.{min(twice)}", changed[min(twice)], f"omitted with --{part} {choice[part]}")
    try:
        return value.replace(**changed)
    except InvalidValue as error:
        raise InvalidValue(f"{part}.{error.field}", error.value, error.allowed) from None


def parse_seeds(words: Iterable[str] | None) -> list[int]:
    """Return seeds: `8` means 0 … 7, `0..31` includes both ends, `3,5,9` is a list; multiple arguments are merged."""
    seeds: dict[int, None] = {}
    for word in words or ["1"]:
        more: range | list[int]
        try:
            if ".." in word:
                first, last = (int(part) for part in word.split(".."))
                more = range(first, last + 1)
            else:
                numbers = [int(part) for part in word.removesuffix(",").split(",")]
                more = numbers if "," in word else range(numbers[0])
            if not (more and min(more) >= 0 and len(more) <= MOST_SEEDS):
                raise ValueError
        except (ValueError, OverflowError):
            allowed = f"a number of seeds (8), a range (0..31) or a list (3,5,9), at most {MOST_SEEDS}"
            raise InvalidValue("seeds", word, allowed) from None
        seeds |= dict.fromkeys(more)
    return list(seeds)


def _yaml(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise RecombineError("PyYAML is not installed: 'pip install pyyaml', or write the sweep in TOML") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


READERS: dict[str, Callable[[str], Any]] = {
    ".toml": tomllib.loads,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": parsed_json,
}


def read_table(path: Path) -> dict[str, Any]:
    """Return the names and values in a TOML, YAML or JSON file."""
    if path.suffix not in READERS:
        raise InvalidValue("file", str(path), f"a file ending in {listed(READERS)}")
    kind = path.suffix[1:].upper()
    content = read_given(path, "file")
    try:
        table = READERS[path.suffix](content.decode())
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InvalidValue("file", str(path), f"a {kind} file in UTF-8 ({reason})") from None
    if not isinstance(table, dict):
        raise InvalidValue("file", str(path), f"a {kind} file of names and values")
    return table


def read_sweep(path: Path, settings: Collection[str]) -> tuple[dict[str, dict[str, list[str]]], dict[str, Any]]:
    """Return the flags of each grid in a file, keyed by the grid's location in it, and the file's settings.

    Flags outside any grid apply to all grids; a file without grids is a single grid.
    """
    table = read_table(path)
    grids = table.pop("grid", None)
    tables = [{}] if grids is None else [grids] if isinstance(grids, dict) else grids
    if not (isinstance(tables, list) and tables and all(isinstance(grid, dict) for grid in tables)):
        raise InvalidValue(f"{path.name}: grid", grids, "one or more [[grid]] tables")
    by_name = {str(name).replace("-", "_"): value for name, value in table.items()}
    given = {name: value for name, value in by_name.items() if name in settings}
    by_place, where = {}, path.name
    try:
        shared = flags_of({name: value for name, value in by_name.items() if name not in settings}, settings)
        for number, grid in enumerate(tables, 1):
            where = path.name if grids is None else f"{path.name}: grid {number}"
            by_place[where] = {**shared, **flags_of(grid)}
    except InvalidValue as error:
        raise located(where, error) from None
    return by_place, given


def located(where: str, error: InvalidValue) -> InvalidValue:
    """Return the error with its location prepended to the field name."""
    return InvalidValue(f"{where}: {error.field}", error.value, error.allowed)


def flags_of(table: Mapping[str, Any], settings: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the values of each flag; `settings` are other valid names to suggest for a misspelt flag."""
    names = {name: flag.name for flag in spec_flags() for name in (flag.name, flag.name.replace("_", "-"))}
    names |= {short: name for name, short in SHORT.items()}
    flat: dict[str, Any] = {}
    for name, value in table.items():  # both `decoder.width = 8` in TOML and `decoder = {width = 8}`
        flat |= {f"{name}.{inner}": part for inner, part in value.items()} if isinstance(value, dict) else {name: value}
    flags: dict[str, list[str]] = {}
    for name, value in flat.items():
        if name not in names:
            raise InvalidValue("field", name, nearest(str(name), [*names, *settings]) or "a flag of 'recombine train'")
        if names[name] in flags:
            raise InvalidValue(name, value, f"omitted, since {names[name]} is the same flag")
        values = value if isinstance(value, list) and names[name] != "seeds" else [value]
        if not values or not all(isinstance(part, str | int | float | list) for part in values):
            raise InvalidValue(name, value, "a string, a number, true or false, or a list of them")
        flags[names[name]] = [part if isinstance(part, str) else typed(part) for part in values]
    return flags
