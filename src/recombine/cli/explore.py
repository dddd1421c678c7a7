"""`recombine explore`: decoders in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from recombine.cli.destinations import require_file
from recombine.cli.diagnose import (
    RUN,
    WITH_FIELDS,
    described,
    load_weights,
    on_data,
    refuse_forms,
    stored_run,
    target_array,
)
from recombine.cli.factories import module_from
from recombine.cli.options import SomePath, StorePath
from recombine.encodings import ENCODINGS
from recombine.errors import InvalidValue, RecombineError, listed
from recombine.holdouts import HOLDOUTS
from recombine.screen import say


def explore(
    *factories: str,
    out: SomePath,
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
    targets: Path | None = None,
    background: Annotated[float | None, Parameter(help="Grey value of an empty output. Default: 0.")] = None,
    image: str | None = None,
    title: str | None = None,
    training: bool = False,
    store: StorePath = None,
) -> None:
    """Write a page on which decoders run live.

    Parameters
    ----------
    factories
        package.module:name or file.py:name of functions or classes that return modules (or of modules), or run:KEY for
        finished runs of a store, whose specs say everything else. Several are compared side by side.
    out
        The HTML file to write.
    grid
        Factors and their values: x=0:27,y=0:27, both ends included; x=0:1:5 has five values.
    data
        In the place of --grid, --targets and --background: a file or folder of images with their factors
        (docs/data.md).
    weights
        A .safetensors file with the module's state.
    targets
        A .npy array of the right outputs, a row per grid point, last factor fastest.
    image
        Rows and columns of an output, as 28,28, or channels first, as 3,28,28, where its own shape does not say it.
    title
        Heading of the page.
    training
        Add a panel in which a small decoder is trained live, with stripes and without.
    """
    if not factories:
        raise RecombineError(f"explore: no module was given; allowed: package.module:name, file.py:name or {RUN}KEY")
    require_file(out, "out")
    flags: dict[str, Any] = {
        "grid": grid, "data": data, "categorical": categorical, "angular": angular, "turn": turn, "weights": weights,
        "encoding": encoding, "holdout": holdout, "targets": targets, "background": background,
    }  # fmt: skip
    stored = [factory.startswith(RUN) for factory in factories]
    if all(stored):
        for name, value in flags.items():
            if value is not None:
                raise InvalidValue(name, str(value), "nothing for stored runs: their specs say it")
        decoders: list[Any] = [stored_run(factory.removeprefix(RUN), store) for factory in factories]
        settings: dict[str, Any] = {}
    elif any(stored) or store is not None:
        raise InvalidValue("store" if store else "explore", str(store or factories), f"modules, or {RUN}KEY only")
    else:
        settings = _settings(flags)
        decoders = _modules(factories, weights)
    from recombine.page import explore as engine

    page = engine(decoders, **settings, image_shape=_image(image), title=title, training=training)
    page.save(out)
    for note in page.notes:
        say(note)
    say(f"written to {out} ({len(page.html) / 1e6:.1f} MB)")


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    """What the flags say of modules' factors and right outputs."""
    if flags["data"] is not None:
        return on_data(flags)
    if flags["grid"] is None:
        raise RecombineError(
            f"--grid: none was given; allowed: factors and values, as x=0:27,y=0:27 ({RUN}KEY brings its own, and so "
            "does --data)"
        )
    refuse_forms(flags)
    settings = {name: flags[name] for name in ("grid", "holdout", "background")}
    return settings | {"encode": flags["encoding"], "targets": target_array(flags["targets"])}


def _modules(factories: tuple[str, ...], weights: Path | None) -> list[Any]:
    """The modules, one of them with weights from a file."""
    modules = [module_from(factory) for factory in factories]
    if weights is not None:
        if len(modules) > 1:
            raise InvalidValue("weights", str(weights), "nothing for several modules, which bring their own")
        load_weights(modules[0], weights)
    return modules


def _image(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidValue("image", text, "rows and columns, as 28,28, or channels first, as 3,28,28") from None
