"""`recombine diagnose` and `recombine explore`, for user modules and stored runs."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from recombine.cli.imports import FLAG as IMPORT
from recombine.cli.imports import module_from, users_code
from recombine.cli.options import Overwrite, SomePath, StorePath, Whole, require_file
from recombine.cli.tables import Column, write_table
from recombine.console import console, paragraph, say
from recombine.encodings import ENCODINGS, RAW
from recombine.errors import InvalidValue, listed, reason_of
from recombine.files import read_array, read_given, require_folder
from recombine.holdouts import HOLDOUTS
from recombine.manifest import write_into
from recombine.metrics.sampling import LIMIT
from recombine.netcdf import encoded
from recombine.store import ModelConfig, Run, Store
from recombine.tasks import ArrayTask

RUN = "run:"
"""Prefix of an argument that names a stored run."""
WITH_FIELDS = "set fields with NAME:FIELD=VALUE"
FORMS = {
    name: ArrayTask.model_fields[name].description for name in ("categorical", "angular", "turn", "bins", "repeats")
}
"""Fields of `ArrayTask` that describe its factors, with their help texts."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SubjectFlags:
    """Flags shared by both commands: what to measure, and on which factors."""

    grid: str | None = None
    """Factors and their values, e.g. x=0:27,y=0:27 (both ends included) or x=0:1:5 (five values)."""
    data: SomePath | None = None
    """File or folder of images with their factors (docs/data.md); replaces --grid, --targets and --background."""
    categorical: Annotated[list[str] | None, Parameter(help=FORMS["categorical"])] = None
    angular: Annotated[list[str] | None, Parameter(help=FORMS["angular"])] = None
    turn: Annotated[float | None, Parameter(help=FORMS["turn"])] = None
    bins: Annotated[str | None, Parameter(help=FORMS["bins"])] = None
    repeats: Annotated[Literal["mean", "keep"] | None, Parameter(help=FORMS["repeats"])] = None
    weights: SomePath | None = None
    """A .safetensors file with the module's weights."""
    encoding: Annotated[
        str | None,
        Parameter(help=f"Encoding of the factor values: {listed(ENCODINGS)}; {WITH_FIELDS}. Default: raw values."),
    ] = None
    holdout: Annotated[
        str | None, Parameter(help=f"Combinations held out of training: {listed(HOLDOUTS)}; {WITH_FIELDS}.")
    ] = None
    targets: SomePath | None = None
    """A .npy file with the target outputs, one row per grid point; the last factor varies fastest."""
    background: float | None = None
    """Grey value of an empty image. Default: 0."""
    output: str | None = None
    """Which of several returned tensors is the output: a key, an index or an attribute, e.g. sample or 0."""
    call: str | None = None
    """Method of the module to call, e.g. decode. Default: forward."""
    kwargs: list[str] | None = None
    """Another argument of the method, with a JSON value, e.g. timestep=0 or mode='"nearest"'; may be repeated."""
    store: StorePath = None

    def subjects(self, factories: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
        """Return the named modules, runs or checkpoints, and the other arguments of `diagnose` and `explore`."""
        if not any(factory.startswith(RUN) for factory in factories):
            self._refuse(["store"], f"omitted unless a factory is {RUN}KEY")
        trained = [factory.startswith(RUN) or os.path.isdir(factory) for factory in factories]
        if all(trained):
            own_names = [own.name for own in fields(self) if own.name != "store"]
            self._refuse(own_names, "omitted for runs and checkpoints, whose spec defines it")
            return [trained_decoder(factory, self.store) for factory in factories], {}
        if any(trained):
            raise InvalidValue("factories", list(factories), f"all modules, or all {RUN}KEY or checkpoint folders")
        settings = self._settings()
        modules = [module_from(factory) for factory in factories]
        if self.weights is not None:
            if len(modules) > 1:
                raise InvalidValue("weights", str(self.weights), "omitted if there are several modules")
            load_weights(modules[0], self.weights)
        return modules, settings

    def _settings(self) -> dict[str, Any]:
        kwargs: dict[str, Any] = {}
        for text in self.kwargs or ():
            name, _, value = text.partition("=")
            try:
                kwargs[name.strip()] = json.loads(value)
            except (ValueError, RecursionError):
                allowed = "an argument with a JSON value, e.g. timestep=0 or return_dict=true"
                raise InvalidValue("kwargs", text, allowed) from None
        called = {"output": self.output, "call": self.call, "kwargs": kwargs}
        if self.data is None:
            self._refuse(FORMS, "omitted without --data")
            if self.grid is None:
                raise InvalidValue("grid", None, "given, e.g. x=0:27,y=0:27, unless --data or a stored run is given")
            targets = None if self.targets is None else read_array(self.targets, "targets")
            settings = {"grid": self.grid, "encode": self.encoding, "holdout": self.holdout, "targets": targets}
            return {**settings, "background": self.background, **called}
        self._refuse(("grid", "targets", "background"), "omitted with --data, which defines it")
        given = {name: getattr(self, name) for name in FORMS if getattr(self, name) is not None}
        task = ArrayTask(data=self.data, holdout="none", **given)
        return {"data": task, "encode": self.encoding or RAW, "holdout": self.holdout, **called}

    def _refuse(self, names: Iterable[str], allowed: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise InvalidValue(name, str(getattr(self, name)), allowed)


def trained_decoder(factory: str, store: Path | None) -> Run | ModelConfig:
    """Return a finished, undamaged run (`run:KEY`) or the checkpoint in a folder."""
    decoder: Run | ModelConfig
    if factory.startswith(RUN):
        decoder = Store(store, create=False)[factory.removeprefix(RUN)]
        if problems := decoder.problems():
            raise InvalidValue("factory", factory, f"a run with undamaged files ({problems[0]})")
    else:
        decoder = ModelConfig.from_pretrained(factory)
    try:
        spec = decoder.spec
    except InvalidValue as error:
        allowed = f"{error.allowed}, or registered by a module given with {IMPORT}"
        raise InvalidValue(error.field, error.value, allowed) from None
    if spec.task.direction != "decode":
        raise InvalidValue("factory", factory, "a trained decoder; pass an encoder as package.module:name")
    return decoder


def load_weights(module: Any, weights: Path) -> None:
    """Load the weights of a .safetensors file into a module."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = read_given(weights, "weights")
    try:
        module.load_state_dict(load(content))
    except SafetensorError as error:
        pickled = content.startswith((b"PK", b"\x80"))  # formats of torch.save, current and old
        hint = "safetensors.torch.save_file(module.state_dict(), FILE) writes one" if pickled else reason_of(error)
        raise InvalidValue("weights", str(weights), f"a valid .safetensors file ({hint})") from error
    except Exception as error:  # a module may override how weights are loaded
        raise InvalidValue("weights", str(weights), f"the weights of this module ({reason_of(error)})") from error


def diagnose(
    factory: str,
    /,
    *,
    subject: SubjectFlags = SubjectFlags(),  # noqa: B008
    stages: list[str] | None = None,
    memory: Whole = 1024,
    geometry: Literal["auto", "exact", "differences"] = "auto",
    thorough: Annotated[bool, Parameter(negative=())] = False,
    points: Whole = LIMIT,
    seed: Whole = 0,
    plane: str | None = None,
    at: list[str] | None = None,
    out: SomePath | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Compute diagnostics for each stage of a module.

    Parameters
    ----------
    factory
        A torch module, or a function that returns one, given as package.module:name or file.py:name; a stored run
        (run:KEY); or the folder of an exported run.
    stages
        Submodules to measure, by path or pattern ('unet.*', or 'unet.**' for all levels). Default: direct children.
    memory
        Memory limit for each measurement, in MiB.
    geometry
        Use exact derivatives, finite differences on the grid, or (auto) exact derivatives where possible.
    thorough
        Also compute the expensive metrics.
    points
        Maximum number of grid points to measure; larger grids are subsampled.
    seed
        Seed for subsampling large grids.
    plane
        Axes of the volume map: two factors, e.g. x,size. Default: the first two.
    at
        Fix another factor in the volume map, e.g. shape=0; may be repeated. Remaining factors are averaged over.
    out
        Write the Dataset (diagnosis.nc) and figures to this folder.
    """
    import recombine.diagnosis as engine

    if memory < 1:
        raise InvalidValue("memory", memory, "at least 1")
    if out is None and (plane is not None or at):
        raise InvalidValue("out", None, "given with --plane and --at, which only affect the figure")
    axes = None if plane is None else [name.strip() for name in plane.split(",")]
    if axes is not None and len(axes) != 2:
        raise InvalidValue("plane", plane, "two factors, such as x,size")
    values = {}
    for text in at or ():
        name, _, value = text.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise InvalidValue("at", text, "a factor and its value, e.g. shape=0") from None
    [module], inputs = subject.subjects([factory])
    if out is not None:
        require_folder(out, "out", overwrite)
    with users_code("module", factory, "a module that runs at every grid point"):
        if axes is not None or values:
            _require_plane(module, inputs, axes, values, points)
        result = engine.diagnose(
            module, **inputs, stages=stages, memory=memory << 20, geometry=geometry, thorough=thorough, points=points,
            seed=seed,
        )  # fmt: skip
    cells = result.summary_table()
    write_table(console(), [Column(name, cells[name], "left" if name == "stage" else "right") for name in cells])
    for line in result.summary_lines():
        paragraph(line)
    if out is not None:
        _write(out, result, axes, values)
        say(f"written to {out}")


def _require_plane(
    module: Any, inputs: dict[str, Any], plane: list[str] | None, at: Mapping[str, float], points: int
) -> None:
    """Raise unless the factors and values of the volume map exist, before anything is measured."""
    from recombine.diagnosis.diagnosing import named_dimensions
    from recombine.diagnosis.drawing import plane_through
    from recombine.diagnosis.subject import Subject

    subject = Subject.of(module, **inputs)
    values = {factor.name: factor.values.numpy() for factor in named_dimensions(subject.grid)[0].factors}
    is_sampled = subject.grid.size > points or subject.present is not None
    plane_through(values, plane, at, is_sampled=is_sampled)


def _write(out: Path, result: Any, plane: list[str] | None, at: Mapping[str, float]) -> None:
    from recombine.diagnosis.drawing import plane_figure, profile_figure
    from recombine.reproduction.reporting import save_figure

    drawn = {"stages": profile_figure(result)}
    if len(result["held_out"].dims) > 1:
        drawn["volume"] = plane_figure(result, plane=plane, at=at)
    write_into(out, {"diagnosis.nc": encoded(result)})
    with warnings.catch_warnings():  # a factor's name may contain characters missing from the font
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        for name, figure in drawn.items():
            save_figure(figure, out, name)


def explore(
    *factories: str,
    out: SomePath,
    subject: SubjectFlags = SubjectFlags(),  # noqa: B008
    image: str | None = None,
    title: str | None = None,
    training: bool = False,
    overwrite: Overwrite = False,
) -> None:
    """Write an interactive page on which decoders run live.

    Parameters
    ----------
    factories
        Torch modules, or functions that return one, given as package.module:name or file.py:name; stored runs
        (run:KEY); or folders of exported runs. If more than one is given, they are shown side by side.
    out
        The HTML file to write.
    image
        Shape of an output image, e.g. 28,28, or 3,28,28 (channels first). Default: the shape of the output.
    title
        Heading of the page.
    training
        Add a panel that trains a small decoder live, with and without isolated-factor examples.
    """
    if not factories:
        raise InvalidValue("factories", None, f"given, as package.module:name, file.py:name, {RUN}KEY or a folder")
    try:
        shape = None if image is None else tuple(int(part) for part in image.split(","))
    except ValueError:
        raise InvalidValue("image", image, "rows and columns, e.g. 28,28, or 3,28,28 (channels first)") from None
    require_file(out, "out", "page", overwrite)
    decoders, settings = subject.subjects(factories)
    from recombine.page import explore as engine

    page = engine(decoders, **settings, image_shape=shape, title=title, training=training)
    page.save(out, overwrite=overwrite)
    for note in page.notes:
        say(note)
    say(f"written to {out} ({len(page.html) / 1e6:.1f} MB)")
