"""`recombine train`, and the flags that it shares with `recombine sweep` and `recombine reproduce`.

Flags are made from the spec's own fields, so that none is ever missing. Each may be given several times: the command
trains every combination. A part with variants (encoding, hold-out, training, decoder) is a text `name:field=value`, or
a name with dotted flags (`--decoder cnn --decoder.width 16`).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import Group, Parameter
from pydantic.fields import FieldInfo

from recombine.cli.options import SHORT, SomePath, StorePath, Whole
from recombine.cli.tables import field_text, write_summary
from recombine.console import console, counted, paragraph, say
from recombine.decoders import DECODERS
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue, listed, typed
from recombine.holdouts import HOLDOUTS
from recombine.records import Registry
from recombine.specs import Recipe, RunSpec
from recombine.store import store_path, summarize
from recombine.sweep import train as train_specs
from recombine.sweep.executors import CHECKPOINT_SECONDS
from recombine.sweep.local import Check
from recombine.tasks import TASKS, TRAINING_RULES, ArrayTask
from recombine.training import DEFAULT_PRECISION, DEVICES, resolve_device

SEPARATOR = "__"
PARTS: dict[str, Registry[Any]] = {
    "encoding": ENCODINGS, "holdout": HOLDOUTS, "training": TRAINING_RULES, "decoder": DECODERS,
}  # fmt: skip
MOST_SEEDS = 100_000
PANELS = {
    name: Group.create_ordered(name)
    for name in ("Task", "Decoder", "Recipe", "Fields of encodings, hold-outs and training sets")
}
MOST_SUMMARISED = 5000
"""Runs that are read again for a table."""
MOST_HOLDOUTS = 8
"""Hold-outs that have a line each."""


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
        common: dict[str, Any] = {"name": names, "help": self.help, "group": PANELS[self.group], "show_default": False}
        kind: Any = Annotated[bool | None, Parameter(**common)]
        if not self.switch:
            kind = Annotated[list[str] | None, Parameter(**common, negative=(), allow_leading_hyphen=True)]
        return inspect.Parameter(self.python_name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


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
    return {
        name: list(texts)
        if registry is TASKS and len(texts) == 1
        else [f"{listed(have)}: {text}" for text, have in texts.items()]
        for name, texts in kinds.items()
    }


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
    """A spec for every combination of the flags' values and every seed, each once."""
    specs: dict[str, RunSpec] = {}
    tasks: dict[tuple[Any, ...], Any] = {}
    for values in itertools.product(*flags.values()):
        choice = dict(zip(flags, values, strict=True))
        specs |= {spec.digest: spec for spec in _spec(choice, tasks).seeds(seeds)}
    return list(specs.values())


def _spec(choice: Mapping[str, str], tasks: dict[tuple[Any, ...], Any]) -> RunSpec:
    """The spec of a choice; a task that another choice had is taken from `tasks`, as most time goes into making one."""
    usual = ArrayTask.kind_name() if "data" in choice else RunSpec.model_fields["task"].default.kind
    kind = choice.get("task", usual)
    fields = {**RunSpec.model_fields, **TASKS[kind].model_fields}
    parts = {part: _part(part, choice, fields[part].default) for part in PARTS}
    task = {name: choice[name] for name in _fields(TASKS) if name in choice}
    task |= {name: parts[name] for name in ("encoding", "holdout", "training")}
    same = (kind, *task.items())
    if same not in tasks:
        tasks[same] = TASKS[kind](**task)
    recipe = Recipe(**{name: choice[name] for name in Recipe.model_fields if name in choice})
    return RunSpec(task=tasks[same], decoder=parts["decoder"], recipe=recipe)


def _part(part: str, choice: Mapping[str, str], default: Any) -> Any:
    """An encoding, hold-out, training rule or decoder, with the fields that flags of their own give."""
    value = PARTS[part].parse(choice[part]) if part in choice else default
    changed = {name.split(".")[1]: own for name, own in choice.items() if name.startswith(f"{part}.")}
    if not changed:
        return value
    if part in choice and (twice := value.model_fields_set & set(changed)):
        raise InvalidValue(f"{part}.{min(twice)}", changed[min(twice)], f"left out with --{part} {choice[part]}")
    try:
        return value.replace(**changed)
    except InvalidValue as error:
        raise InvalidValue(f"{part}.{error.field}", error.value, error.allowed) from None


def parse_seeds(words: Iterable[str] | None) -> list[int]:
    """`8` is 0 … 7, `0..31` both ends included, `3,5,9` those; several are joined."""
    seeds: dict[int, None] = {}
    for word in words or ["1"]:
        try:
            further = _seeds(word)
            if not (further and min(further) >= 0 and len(further) <= MOST_SEEDS):
                raise ValueError
        except (ValueError, OverflowError):
            allowed = f"a number of seeds (8), a range (0..31) or a list (3,5,9), at most {MOST_SEEDS}"
            raise InvalidValue("seeds", word, allowed) from None
        seeds |= dict.fromkeys(further)
    return list(seeds)


def _seeds(word: str) -> range | list[int]:
    if ".." in word:
        first, last = (int(part) for part in word.split(".."))
        return range(first, last + 1)
    return [int(part) for part in word.removesuffix(",").split(",")] if "," in word else range(int(word))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExecutorFlags:
    """Who trains, and where runs are kept."""

    device: Annotated[str | None, Parameter(help=f"{listed(DEVICES)}. Default: auto.")] = None
    store: StorePath = None
    members: Annotated[
        Whole | None, Parameter(help="Maximum number of models trained together. Default: by device.")
    ] = None
    processes: Annotated[
        Whole | None,
        Parameter(
            help="Number of single-threaded worker processes, on a CPU. Default: one per core for reproduce, else this "
            "process with all threads."
        ),
    ] = None
    scheduler: Annotated[
        str | None,
        Parameter(
            help="Train on the Dask cluster of the scheduler at this address (tcp://HOST:PORT); workers see the store "
            "at the same path."
        ),
    ] = None
    scheduler_file: Annotated[
        SomePath | None,
        Parameter(help="The same, by the file that the scheduler wrote; read again when it is lost."),
    ] = None

    @property
    def cluster(self) -> str | Path | None:
        """Where the scheduler of a cluster is, if one was named."""
        address, file = self.scheduler, self.scheduler_file
        if address is not None and file is not None:
            raise InvalidValue("scheduler_file", str(file), "left out together with --scheduler")
        if address is not None and not address.partition("://")[2]:
            raise InvalidValue("scheduler", address, "an address as tcp://HOST:PORT")
        return address if file is None else file


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingFlags(ExecutorFlags):
    """Where and how runs are trained; a sweep file has the same fields beside its grids."""

    memory: Annotated[float | None, Parameter(help="GPU memory limit in GiB. Default: all that is free.")] = None
    checkpoint: Annotated[
        float | None, Parameter(help=f"Seconds between checkpoints. Default: {CHECKPOINT_SECONDS:g}.")
    ] = None

    def spec_flags(self) -> dict[str, list[str]]:
        """Flags of specs whose default depends on the device; what a cluster's workers have only `device` says."""
        device = self.device or "auto"
        kind = resolve_device(device).type if self.cluster is None else "cuda" if device == "cuda" else "cpu"
        return {"precision": [DEFAULT_PRECISION[kind]]}

    def train(self, specs: list[RunSpec], check: Check = "bytes") -> None:
        """Train specs, with a bar, and print a table, unless there are too many runs for one."""
        runs = train_specs(
            specs, self.store, device=self.device or "auto", members=self.members, processes=self.processes,
            checkpoint_seconds=CHECKPOINT_SECONDS if self.checkpoint is None else self.checkpoint, memory=self.memory,
            scheduler=self.cluster, check=check, progress=True,
        )  # fmt: skip
        if len(runs) <= MOST_SUMMARISED:
            write_summary(console(), summarize(runs))
        for line in _holdout_lines(specs):
            paragraph(line)
        say(f"{counted(len(runs), 'run')} in {store_path(self.store)}; 'recombine runs list' shows more")


@with_spec_flags
def train(
    flags: dict[str, list[str]],
    *,
    seeds: Annotated[
        list[str] | None,
        Parameter(help="How many (8), a range with both ends (0..31) or a list (3,5,9).", negative=()),
    ] = None,
    settings: TrainingFlags = TrainingFlags(),  # noqa: B008
) -> None:
    """Train every combination of the flags' values with every seed, and print a table."""
    settings.train(specs_from({**settings.spec_flags(), **flags}, parse_seeds(seeds)))


def _holdout_lines(specs: list[RunSpec]) -> list[str]:
    """What each hold-out keeps, once for each grid that it was used on; only how many there are, if they are many."""
    tasks = {(spec.task.holdout, spec.task.grid, spec.task.holdout_summary): spec.task for spec in specs}
    if len(tasks) > MOST_HOLDOUTS:
        return [f"{len(tasks)} hold-outs"]
    texts = {task: field_text(task.holdout.model_dump(mode="json")) for task in tasks.values()}
    return [f"hold-out {text}: {task.holdout_summary}" for task, text in texts.items()]
