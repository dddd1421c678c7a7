"""`recombine diagnose`: the measurements on a module of one's own."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import Parameter
from rich.table import Table

from recombine.arrays import as_numbers, read_array
from recombine.checks import one_of, whole_number
from recombine.cli.factories import module_from
from recombine.cli.tables import console
from recombine.errors import InvalidValue, reason_of
from recombine.files import explained, read_given, write
from recombine.store import Store

LARGEST_MEMORY = 2**30
"""Megabytes: more than any machine has."""
RUN = "run:"
"""What a factory begins with that is a run of a store."""


def diagnose(
    factory: str,
    /,
    *,
    grid: str | None = None,
    weights: Path | None = None,
    encoding: str | None = None,
    holdout: str | None = None,
    stages: Annotated[list[str] | None, Parameter(negative=())] = None,
    targets: Path | None = None,
    background: float = 0.0,
    memory: Annotated[int, Parameter(help="Megabytes that a measurement may keep at a time.")] = 1024,
    geometry: str = "auto",
    store: Path | None = None,
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
    weights
        A .safetensors file with the module's state.
    encoding
        How factor values become inputs: bump, onehot, rate, ramp, positional, with fields as NAME:FIELD=VALUE.
        By default the values themselves.
    holdout
        Which combinations were held out of training: center:6:22, corner, mask:FILE, …
    stages
        Paths of submodules to measure, or patterns: 'unet.*' for one level of a path, 'unet.**' for all below; by
        default the module's own parts, with wrappers opened.
    targets
        A .npy array of the right answers, a row a grid point, last factor fastest.
    background
        Grey value of an empty answer.
    geometry
        auto (exact where encoding and module have a derivative), exact, or differences between grid points.
    store
        Directory of runs, for run:KEY. Default: $RECOMBINE_STORE or ./runs.
    out
        Folder for the Dataset (diagnosis.nc) and figures.
    """
    import recombine.diagnosis as engine
    from recombine.diagnosis.measure import Geometry

    settings: dict[str, Any] = {
        "geometry": one_of("geometry", geometry, get_args(Geometry)),
        "memory": whole_number("memory", memory, at_most=LARGEST_MEMORY) << 20, "stages": stages
    }  # fmt: skip
    if factory.startswith(RUN):
        given = {"grid": grid, "weights": weights, "encoding": encoding, "holdout": holdout, "targets": targets}
        for name, value in given.items():
            if value is not None:
                raise InvalidValue(name, str(value), "nothing for a stored run: its spec says it")
        task, module = _stored(factory.removeprefix(RUN), store)
        truth = task.render(task.grid.points)
        result = engine.diagnose(
            module, task.grid, encode=task.encoding, holdout=task.held_out, targets=truth,
            background=task.background, **settings,
        )  # fmt: skip
    else:
        if grid is None:
            raise InvalidValue("grid", None, "factors and their values, as x=0:27,y=0:27")
        parsed, module = engine.parse_grid(grid), module_from(factory)
        if weights is not None:
            _load(module, weights)
        result = engine.diagnose(
            module, parsed, encode=encoding, holdout=holdout, targets=_targets(targets),
            background=background, **settings,
        )  # fmt: skip
    printer = console()
    header, *lines = result.summary().splitlines()
    cells = [cell.strip() for cell in header.split("  ") if cell.strip()]
    table = Table(*cells)
    count = result.sizes["stage"]
    for line in lines[:count]:
        table.add_row(*[cell for cell in line.split("  ") if cell.strip()])
    printer.print(table)
    for line in lines[count:]:
        printer.print(line, highlight=False)
    if out is not None:
        _write(out, result)
        printer.print(f"written to {out}", highlight=False)


def _stored(key: str, store: Path | None) -> tuple[Any, Any]:
    """Task and trained network of a finished run."""
    run = Store(store, create=False).resolve(key)
    if problems := run.problems():
        raise InvalidValue("factory", f"{RUN}{key}", f"a run whose files are whole ({problems[0]})")
    if run.spec.task.direction != "decode":
        raise InvalidValue("factory", f"{RUN}{key}", "a run that decodes; give an encoder as package.module:name")
    return run.spec.task, run.module()


def _load(module: Any, weights: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = read_given(weights, "weights")
    try:
        module.load_state_dict(load(content))
    except SafetensorError as error:
        raise InvalidValue("weights", str(weights), f"a whole .safetensors file ({reason_of(error)})") from error
    except Exception as error:  # also what a module's own way of loading raises
        raise InvalidValue("weights", str(weights), f"the state of this module ({reason_of(error)})") from error


def _targets(path: Path | None) -> Any:
    return None if path is None else as_numbers(read_array(path, "targets"), "targets")


def _write(out: Path, result: Any) -> None:
    from matplotlib import pyplot

    from recombine.figures.diagnosis import profile_figure, volume_figure

    with explained(out, "out"):
        out.mkdir(parents=True, exist_ok=True)
        result.to_netcdf(out / ".diagnosis.nc", engine="h5netcdf")
        os.replace(out / ".diagnosis.nc", out / "diagnosis.nc")
    drawn = {"stages": profile_figure(result)}
    if len(result["held_out"].dims) == 2:
        drawn["volume"] = volume_figure(result)
    for name, figure in drawn.items():
        for kind in ("png", "svg"):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind)
            write(out / f"{name}.{kind}", buffer.getvalue(), "out")
        pyplot.close(figure)
