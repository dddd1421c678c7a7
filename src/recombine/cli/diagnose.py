"""`recombine diagnose`: the measurements on a module of one's own."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from recombine.arrays import as_numbers, read_array
from recombine.checks import one_of, whole_number
from recombine.cli.destinations import require_folder
from recombine.cli.factories import module_from
from recombine.cli.imports import FLAG as IMPORT
from recombine.cli.options import SomePath, StorePath, Whole
from recombine.cli.planes import AtValues, PlaneNames, parsed_at, parsed_plane, require_plane
from recombine.cli.tables import Column, Holds, write_table
from recombine.diagnosis.diagnosing import GEOMETRIES
from recombine.diagnosis.sampling import LIMIT
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue, RecombineError, listed, reason_of
from recombine.files import one_line_errors, read_given, write
from recombine.holdouts import HOLDOUTS
from recombine.screen import console, paragraph, say
from recombine.store import Run, Store
from recombine.tasks import ArrayTask

LARGEST_MEMORY = 2**30
"""Megabytes: more than any machine has."""
RUN = "run:"
"""What a factory begins with that is a run of a store."""
WITH_FIELDS = "with fields as NAME:FIELD=VALUE"
FORMS = ("categorical", "angular", "turn")
"""Fields of the array task that say what its factors are."""


def described(field: str) -> str:
    """The help of a flag that is a field of the array task."""
    return str(ArrayTask.model_fields[field].description).replace("`", "")


def diagnose(
    factory: str,
    /,
    *,
    grid: str | None = None,
    data: SomePath | None = None,
    categorical: Annotated[list[str] | None, Parameter(help=described("categorical"), negative=())] = None,
    angular: Annotated[list[str] | None, Parameter(help=described("angular"), negative=())] = None,
    turn: Annotated[float | None, Parameter(help=described("turn"), show_default=False)] = None,
    weights: Path | None = None,
    encoding: Annotated[
        str | None,
        Parameter(help=f"How values become inputs: {listed(ENCODINGS)}; {WITH_FIELDS}. Default: as they are."),
    ] = None,
    holdout: Annotated[
        str | None,
        Parameter(help=f"Which combinations were held out of training: {listed(HOLDOUTS)}; {WITH_FIELDS}."),
    ] = None,
    stages: Annotated[list[str] | None, Parameter(negative=())] = None,
    targets: Path | None = None,
    background: Annotated[float | None, Parameter(help="Grey value of an empty output. Default: 0.")] = None,
    memory: Annotated[Whole, Parameter(help="Megabytes that a measurement may keep at a time.")] = 1024,
    geometry: Annotated[
        str,
        Parameter(
            help=f"{listed(GEOMETRIES)}: exact derivatives, differences between grid points, or (auto) exact ones "
            "where there are any."
        ),
    ] = GEOMETRIES[0],
    thorough: Annotated[bool, Parameter(help="Measure what takes long too.", negative=())] = False,
    points: Annotated[
        Whole | None,
        Parameter(help=f"Points that are measured; a larger grid is sampled. Default: {LIMIT}."),
    ] = None,
    seed: Annotated[Whole, Parameter(help="Of the sample of a grid that is larger than that.")] = 0,
    plane: PlaneNames = None,
    at: AtValues = None,
    store: StorePath = None,
    out: Path | None = None,
) -> None:
    """Measure a module: geometry, factorization, probes, tuning, kernels and superposition, stage by stage.

    Parameters
    ----------
    factory
        package.module:name or file.py:name of a function or class that returns the module (or of the module itself),
        or run:KEY for a finished run of a store, whose spec says everything else.
    grid
        Factors and their values: x=0:27,y=0:27, both ends included; x=0:1:5 has five values.
    data
        In the place of --grid, --targets and --background: a file or folder of images with their factors
        (docs/data.md).
    weights
        A .safetensors file with the module's state.
    stages
        Paths of submodules to measure, or patterns: 'unet.*' for one level of a path, 'unet.**' for all below; by
        default the module's own parts, with wrappers opened.
    targets
        A .npy array of the right outputs, a row per grid point, last factor fastest.
    out
        Folder for the Dataset (diagnosis.nc) and figures.
    """
    import recombine.diagnosis as engine

    settings: dict[str, Any] = {
        "geometry": one_of("geometry", geometry, GEOMETRIES),
        "memory": whole_number("memory", memory, at_most=LARGEST_MEMORY) << 20, "stages": stages,
        "thorough": thorough, "seed": whole_number("seed", seed, at_least=0),
        "points": None if points is None else whole_number("points", points),
    }  # fmt: skip
    chosen, values = parsed_plane(plane, out), parsed_at(at, out)
    flags = {
        "grid": grid, "weights": weights, "encoding": encoding, "holdout": holdout, "targets": targets,
        "background": background, "data": data, "categorical": categorical, "angular": angular, "turn": turn,
    }  # fmt: skip
    if factory.startswith(RUN):
        module, factors, inputs = _run_of_a_store(factory.removeprefix(RUN), store, flags)
    else:
        if store is not None:
            raise InvalidValue("store", str(store), f"nothing unless the module is {RUN}KEY")
        module, factors, inputs = _module_of_a_user(factory, flags)
    if chosen is not None or values:
        require_plane(inputs["data"].grid if factors is None else factors, chosen, values)
    if out is not None:
        require_folder(out, "out")
    result = engine.diagnose(module, factors, **settings, **inputs)
    _print(result)
    if out is not None:
        _write(out, result, chosen, values)
        say(f"written to {out}")


def _run_of_a_store(key: str, store: Path | None, flags: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Trained network, grid and settings of a finished run."""
    for name, value in flags.items():
        if value is not None:
            raise InvalidValue(name, str(value), "nothing for a stored run: its spec says it")
    run = stored_run(key, store)
    task = run.spec.task
    if isinstance(task, ArrayTask):
        return run.module(), None, {"data": task}
    settings = {"encode": task.encoding, "holdout": task.held_out, "targets": task.render}
    return run.module(), task.grid, settings | {"background": task.background}


def _module_of_a_user(factory: str, flags: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Module, grid and settings that the command's flags describe."""
    from recombine.diagnosis import parse_grid

    if flags["data"] is not None:
        return _module_on_data(factory, flags)
    if flags["grid"] is None:
        raise RecombineError(
            f"--grid: none was given; allowed: factors and values, as x=0:27,y=0:27 ({RUN}KEY brings its own, and so "
            "does --data)"
        )
    refuse_forms(flags)
    points, module = parse_grid(flags["grid"]), module_from(factory)
    if flags["weights"] is not None:
        load_weights(module, flags["weights"])
    settings = {"encode": flags["encoding"], "holdout": flags["holdout"], "background": flags["background"] or 0.0}
    return module, points, {**settings, "targets": target_array(flags["targets"])}


def _module_on_data(factory: str, flags: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Module and settings where the grid is that of a user's data."""
    settings = on_data(flags)
    module = module_from(factory)
    if flags["weights"] is not None:
        load_weights(module, flags["weights"])
    return module, None, settings


def on_data(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What `diagnose` and `explore` take where the grid is that of a user's data."""
    for name in ("grid", "targets", "background"):
        if flags[name] is not None:
            raise InvalidValue(name, str(flags[name]), "nothing beside --data, which has its own")
    forms = {name: flags[name] for name in FORMS if flags[name] is not None}
    encoding = flags["encoding"]
    task = ArrayTask(
        data=flags["data"], holdout=flags["holdout"] or "none", allow_unseen=True, **forms,
        **({"encoding": encoding} if encoding is not None else {}),
    )  # fmt: skip
    return {"data": task} | ({"encode": _as_they_are} if encoding is None else {})


def refuse_forms(flags: Mapping[str, Any]) -> None:
    """Refuse flags that say what the factors of data are, where there are none."""
    for name in FORMS:
        if flags[name] is not None:
            given = flags[name] if name == "turn" else listed(flags[name])
            raise InvalidValue(name, given, "nothing without --data")


def _as_they_are(values: Any) -> Any:
    return values


def _print(result: Any) -> None:
    """Write the summary: its table as wide as the screen, then its other lines."""
    columns = [
        Column(heading, cells, Holds.NAMES if heading == "stage" else Holds.NUMBERS)
        for heading, cells in result.summary_table().items()
    ]
    write_table(console(), columns)
    for line in result.summary_lines():
        paragraph(line)


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


def target_array(path: Path | None) -> Any:
    """The right outputs of a file."""
    return None if path is None else as_numbers(read_array(path, "targets"), "targets")


def _write(out: Path, result: Any, plane: tuple[str, str] | None, at: Mapping[str, float]) -> None:
    from matplotlib import pyplot

    from recombine.diagnosis.drawing import profile_figure, volume_figure

    with one_line_errors(out, "out"):
        out.mkdir(parents=True, exist_ok=True)
        result.to_netcdf(out / ".diagnosis.nc", engine="h5netcdf")
        os.replace(out / ".diagnosis.nc", out / "diagnosis.nc")
    drawn = {"stages": profile_figure(result)}
    if len(result["held_out"].dims) > 1:
        drawn["volume"] = volume_figure(result, plane, at)
    for name, figure in drawn.items():
        for kind in ("png", "svg"):
            buffer = io.BytesIO()
            with warnings.catch_warnings():  # a box stands for a letter of a name that the font does not have
                warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
                figure.savefig(buffer, format=kind)
            write(out / f"{name}.{kind}", buffer.getvalue(), "out")
        pyplot.close(figure)
