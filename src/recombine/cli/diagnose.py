"""`recombine diagnose`: the measurements on a module of one's own."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from recombine.cli.destinations import require_folder
from recombine.cli.imports import users_code
from recombine.cli.options import Whole
from recombine.cli.subject import SubjectFlags
from recombine.cli.tables import Column, Holds, write_table
from recombine.console import console, paragraph, say
from recombine.diagnosis.sampling import LIMIT
from recombine.errors import InvalidValue
from recombine.files import one_line_errors, write


def diagnose(
    factory: str,
    /,
    *,
    subject: SubjectFlags = SubjectFlags(),  # noqa: B008
    stages: Annotated[list[str] | None, Parameter(negative=())] = None,
    memory: Annotated[Whole, Parameter(help="Megabytes that a measurement may keep at a time.")] = 1024,
    geometry: Annotated[
        Literal["auto", "exact", "differences"],
        Parameter(help="Exact derivatives, differences between grid points, or (auto) exact ones where there are any."),
    ] = "auto",
    thorough: Annotated[bool, Parameter(help="Also compute the expensive metrics.", negative=())] = False,
    points: Annotated[
        Whole | None,
        Parameter(help=f"Points that are measured; a larger grid is sampled. Default: {LIMIT}."),
    ] = None,
    seed: Annotated[Whole, Parameter(help="Seed for subsampling large grids.")] = 0,
    plane: Annotated[
        str | None,
        Parameter(help="Two factors that the map of the volume is drawn over, as x,size. Default: the first two."),
    ] = None,
    at: Annotated[
        list[str] | None,
        Parameter(
            help="Value of another factor in that map, as shape=0; several allowed. Factors without one are averaged.",
            negative=(),
        ),
    ] = None,
    out: Path | None = None,
) -> None:
    """Measure a module: geometry, factorization, probes, tuning, kernels and superposition, stage by stage.

    Parameters
    ----------
    factory
        package.module:name or file.py:name of a function or class that returns the module (or of the module itself),
        or run:KEY for a finished run of a store, whose spec says everything else.
    stages
        Paths of submodules to measure, or patterns: 'unet.*' for one level of a path, 'unet.**' for all below; by
        default the module's own parts, with wrappers opened.
    out
        Folder for the Dataset (diagnosis.nc) and figures.
    """
    import recombine.diagnosis as engine

    if out is None and (plane is not None or at):
        raise InvalidValue("out", None, "given with --plane and --at, which are for the figure there")
    drawn, values = _plane(plane), _values_at(at or ())
    [module], inputs = subject.subjects([factory])
    if out is not None:
        require_folder(out, "out")
    with users_code("module", factory, "a module that runs at every grid point"):
        result = engine.diagnose(
            module, **inputs, stages=stages, memory=memory << 20, geometry=geometry, thorough=thorough, points=points,
            seed=seed,
        )  # fmt: skip
    _print(result)
    if out is not None:
        _write(out, result, drawn, values)
        say(f"written to {out}")


def _plane(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2:
        raise InvalidValue("plane", text, "two factors, as x,size")
    return names[0], names[1]


def _values_at(texts: Sequence[str]) -> dict[str, float]:
    values = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise InvalidValue("at", text, "a factor and its value, as shape=0") from None
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


def _write(out: Path, result: Any, plane: tuple[str, str] | None, at: Mapping[str, float]) -> None:
    from matplotlib import pyplot

    from recombine.diagnosis.drawing import plane_figure, profile_figure

    drawn = {"stages": profile_figure(result)}
    if len(result["held_out"].dims) > 1:
        drawn["volume"] = plane_figure(result, plane=plane, at=at)  # refuses before anything is written
    with one_line_errors(out, "out"):
        out.mkdir(parents=True, exist_ok=True)
        result.to_netcdf(out / ".diagnosis.nc", engine="h5netcdf")
        os.replace(out / ".diagnosis.nc", out / "diagnosis.nc")
    for name, figure in drawn.items():
        for kind in ("png", "svg"):
            buffer = io.BytesIO()
            with warnings.catch_warnings():  # a box stands for a letter of a name that the font does not have
                warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
                figure.savefig(buffer, format=kind)
            write(out / f"{name}.{kind}", buffer.getvalue(), "out")
        pyplot.close(figure)
