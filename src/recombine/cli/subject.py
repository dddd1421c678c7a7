"""What `diagnose` and `explore` are about: modules of a user's or stored runs, their factors and right outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from recombine.cli.imports import FLAG as IMPORT
from recombine.cli.imports import module_from
from recombine.cli.options import SomePath, StorePath
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue, listed, reason_of
from recombine.files import as_numbers, read_array, read_given
from recombine.holdouts import HOLDOUTS
from recombine.store import Run, Store
from recombine.tasks import ArrayTask

RUN = "run:"
"""What a factory begins with that is a run of a store."""
WITH_FIELDS = "with fields as NAME:FIELD=VALUE"
FORMS = ("categorical", "angular", "turn")
"""Fields of the array task that say what its factors are."""


def _described(field: str) -> str:
    return str(ArrayTask.model_fields[field].description).replace("`", "")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SubjectFlags:
    """The flags that both commands have."""

    grid: Annotated[
        str | None,
        Parameter(help="Factors and their values: x=0:27,y=0:27, both ends included; x=0:1:5 has five values."),
    ] = None
    data: Annotated[
        SomePath | None,
        Parameter(
            help="Instead of --grid, --targets and --background: a file or folder of images with their factors "
            "(docs/data.md)."
        ),
    ] = None
    categorical: Annotated[list[str] | None, Parameter(help=_described("categorical"), negative=())] = None
    angular: Annotated[list[str] | None, Parameter(help=_described("angular"), negative=())] = None
    turn: Annotated[float | None, Parameter(help=_described("turn"), show_default=False)] = None
    weights: Annotated[Path | None, Parameter(help="A .safetensors file with the module's state.")] = None
    encoding: Annotated[
        str | None,
        Parameter(help=f"Encoding of factor values: {listed(ENCODINGS)}; {WITH_FIELDS}. Default: raw factor values."),
    ] = None
    holdout: Annotated[
        str | None,
        Parameter(help=f"Combinations held out of training: {listed(HOLDOUTS)}; {WITH_FIELDS}."),
    ] = None
    targets: Annotated[
        Path | None,
        Parameter(help="A .npy array of the right outputs, a row per grid point, last factor fastest."),
    ] = None
    background: Annotated[float | None, Parameter(help="Grey value of an empty output. Default: 0.")] = None
    store: StorePath = None

    def subjects(self, factories: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
        """The modules or runs that are named, and what `diagnose` and `explore` take beside them."""
        stored = [factory.startswith(RUN) for factory in factories]
        if all(stored):
            self._refuse([own.name for own in fields(self) if own.name != "store"], "left out for stored runs")
            return [stored_run(factory.removeprefix(RUN), self.store) for factory in factories], {}
        if any(stored):
            raise InvalidValue("factories", list(factories), f"all modules or all {RUN}KEY")
        self._refuse(["store"], f"left out unless a factory is {RUN}KEY")
        settings = self._settings()
        modules = [module_from(factory) for factory in factories]
        if self.weights is not None:
            if len(modules) > 1:
                raise InvalidValue("weights", str(self.weights), "left out for several modules")
            load_weights(modules[0], self.weights)
        return modules, settings

    def _settings(self) -> dict[str, Any]:
        if self.data is None:
            self._refuse(FORMS, "left out without --data")
            if self.grid is None:
                raise InvalidValue("grid", None, "given, as x=0:27,y=0:27, unless there is --data or a stored run")
            targets = None if self.targets is None else as_numbers(read_array(self.targets, "targets"), "targets")
            settings = {"grid": self.grid, "encode": self.encoding, "holdout": self.holdout, "targets": targets}
            return settings | ({"background": self.background} if self.background is not None else {})
        self._refuse(("grid", "targets", "background"), "left out beside --data, which has its own")
        given = {name: getattr(self, name) for name in (*FORMS, "encoding") if getattr(self, name) is not None}
        task = ArrayTask(data=self.data, holdout=self.holdout or "none", allow_unseen=True, **given)
        return {"data": task} | ({"encode": _raw} if self.encoding is None else {})

    def _refuse(self, names: Sequence[str], allowed: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise InvalidValue(name, str(getattr(self, name)), allowed)


def _raw(values: Any) -> Any:
    """Factor values as they are, where `ArrayTask` would encode them by its default."""
    return values


def stored_run(key: str, store: Path | None) -> Run:
    """A finished run that decodes, whole and with all its parts known."""
    run = Store(store, create=False).resolve(key)
    if problems := run.problems():
        raise InvalidValue("factory", f"{RUN}{key}", f"a run whose files are whole ({problems[0]})")
    try:
        spec = run.spec
    except InvalidValue as error:
        allowed = f"{error.allowed}, or what a module registers that {IMPORT} names"
        raise InvalidValue(error.field, error.value, allowed) from None
    if spec.task.direction != "decode":
        raise InvalidValue("factory", f"{RUN}{key}", "a run that decodes; give an encoder as package.module:name")
    return run


def load_weights(module: Any, weights: Path) -> None:
    """Give a module the state of a .safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = read_given(weights, "weights")
    try:
        module.load_state_dict(load(content))
    except SafetensorError as error:
        pickled = content.startswith((b"PK", b"\x80"))  # torch.save, now and before
        hint = "safetensors.torch.save_file(module.state_dict(), FILE) writes one" if pickled else reason_of(error)
        raise InvalidValue("weights", str(weights), f"a whole .safetensors file ({hint})") from error
    except Exception as error:  # also what a module's own way of loading raises
        raise InvalidValue("weights", str(weights), f"the state of this module ({reason_of(error)})") from error
