"""The paper's measurements on anyone's module.

>>> result = diagnose(module, "x=0:27,y=0:27", encode="bump", holdout="center:6:22", targets=images)
>>> print(result.summary())

`module` maps a batch of encoded factor values to a batch of anything. It is run in evaluation mode, watched by hooks,
and left exactly as it was: training flags, hooks, gradients, buffers and random state. The result is one labelled
Dataset: metric tensor, volume and factorization at every stage and grid point, probes, tuning indices and Schmidt
spectra a stage, kernels and superposition of the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
import xarray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from recombine.encodings import ENCODINGS, Encoding
from recombine.errors import InvalidValue, listed
from recombine.factors import Factor, FactorGrid
from recombine.holdouts import HOLDOUTS, Holdout
from recombine.metrics import (
    Reader,
    Tap,
    averaged_prediction,
    features,
    finite_difference_metric,
    gram_matrix,
    kernel_agreement,
    local_factorization,
    mean_factorization,
    metric_tensor,
    neuron_tuning,
    probe_scores,
    schmidt_spectrum,
    squared_error,
    superposition_scores,
    volume_element,
)
from recombine.metrics.stages import INPUT, MEMORY

OUTPUT = "output"
"""Name of the stage that is the module's answer."""
SCHMIDT_MODES = 16
"""Schmidt values kept a stage."""
PERMUTATIONS = 499
"""Permutations of the kernel test; a study that needs smaller p-values asks for more."""

ROWS_AT_ONCE = 64
"""Rows that a module is given at a time where nothing says how large they are."""

Encode = Callable[[Tensor], Tensor]


class Diagnosis(xarray.Dataset):
    """A Dataset with a summary for a terminal."""

    __slots__ = ()

    def summary(self) -> str:
        """One line a stage, then what was found about the answers."""
        volume = self["volume"]
        depth = xarray.apply_ufunc(np.log10, volume.where(volume > 0))
        columns = {
            "stage": [str(name) for name in self["stage"].values],
            "features": [f"{value:d}" for value in self["features"].values],
            **({"factorization": _numbers(self["factorization_mean"])} if "factorization_mean" in self else {}),
            "log10 volume": _numbers(depth.mean(_grid_axes(self))),
            "its spread": _numbers(depth.std(_grid_axes(self))),
            "probe R² (in sample)": _numbers(self["probe_in_sample"].mean("factor")),
        }
        if "probe_held_out" in self:
            columns["probe R² (held out)"] = _numbers(self["probe_held_out"].mean("factor"))
        columns |= {"stripe": _numbers(self["stripe_index"]), "localisation": _numbers(self["localisation_index"])}
        widths = {name: max(len(name), *map(len, cells)) for name, cells in columns.items()}
        lines = ["  ".join(f"{name:>{width}}" for name, width in widths.items())]
        for row in zip(*columns.values(), strict=True):
            lines.append("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths.values(), strict=True)))
        for name in ("id_error", "ood_error", "kernel_agreement", "kernel_p", "superposition"):
            if name in self:
                found = self[name]
                cases = [""] if found.ndim == 0 else [f" {case}" for case in found[found.dims[0]].values]
                values = np.atleast_1d(found.values)
                lines += [f"{name}{case}: {value:.3g}" for case, value in zip(cases, values, strict=True)]
        return "\n".join(lines)


def diagnose(
    module: nn.Module,
    grid: FactorGrid | str,
    *,
    encode: Encode | Encoding | str | None = None,
    holdout: Holdout | Tensor | np.ndarray | str | None = None,
    stages: Sequence[str] | None = None,
    targets: Tensor | None = None,
    background: float = 0.0,
    memory: int = MEMORY,
    geometry: Literal["auto", "exact", "differences"] = "auto",
) -> Diagnosis:
    """Measure a module over a factor grid.

    `encode` is an encoding (by name, or one of ours), a function from `(point, factor)` values to inputs, or nothing:
    the values themselves. `stages` are module paths; by default the module's own parts, in the order they are run.
    `targets` are the right answers, a row a grid point in its order, for errors and superposition. `geometry` is exact
    wherever the encoding has a derivative, unless differences between grid points are asked for.
    """
    grid = parse_grid(grid) if isinstance(grid, str) else grid
    if memory < 1:
        raise InvalidValue("memory", memory, "a number of bytes, 1 or more")
    if targets is not None and len(targets) != grid.size:
        raise InvalidValue("targets", tuple(targets.shape), f"{grid.size} rows, one a grid point")
    encoding = ENCODINGS.parse(encode) if isinstance(encode, str) else encode
    mask = _mask(holdout, grid)
    place = next((p for p in (*module.parameters(), *module.buffers())), torch.empty(0))
    dtype = place.dtype if place.is_floating_point() else torch.float32
    points = grid.points.to(place.device)

    def encoded(values: Tensor) -> Tensor:
        return _encoded(values, encoding, grid).to(dtype)

    with _undisturbed(module), sdpa_kernel(SDPBackend.MATH):
        _try(module, encoded(points[:2]))
        names = _check_stages(module, stages) if stages is not None else _found_stages(module, encoded(points[:2]))
        reader = module_reader(module, encoded, names)
        smooth = not isinstance(encoding, Encoding) or encoding.differentiable
        if geometry == "exact" and not smooth:
            raise InvalidValue("geometry", geometry, "differences, since one-hot codes have no derivative")
        exact = smooth and geometry != "differences"
        metrics = metric_tensor(reader, points, memory=memory, repeated=True) if exact else {}
        result: dict[str, Any] = {}
        rows: dict[str, list[Any]] = {}
        order = []
        answers = None
        for name, stage in features(reader, points, memory=memory):
            if not bool(torch.isfinite(stage).all()):
                raise InvalidValue("module", name, "a stage with finite activations at every grid point")
            metric = metrics[name] if exact else finite_difference_metric(
                stage, grid.shape, tuple(factor.spacing for factor in grid.factors)
            )  # fmt: skip
            order.append(name)
            _measure_stage(rows, stage, metric, points, mask, grid)
            answers = stage if name == OUTPUT else answers
        assert answers is not None
        if isinstance(encoding, Encoding) and targets is not None and bool(mask.any()):
            result |= _superposition(module, encoding, grid, points, mask, answers, targets, background, dtype)
    result |= _answers(answers, points, mask, grid, targets)
    return _dataset(rows, order, result, grid, mask, "exact" if exact else "finite differences")


# -- reading a module --------------------------------------------------------------------------------------------------


def module_reader(module: nn.Module, encode: Encode, names: Sequence[str]) -> Reader:
    """Reads the input, the named submodules as they are run, and the answer."""

    def read(values: Tensor, tap: Tap) -> None:
        inputs = encode(values)
        tap(INPUT, inputs)
        seen: set[str] = set()

        def hook_for(name: str) -> Callable[..., None]:
            def hook(part: nn.Module, given: object, output: object) -> None:
                tensor = _tensor_in(output)
                if tensor is not None and name not in seen and tensor.shape[:1] == values.shape[:1]:
                    seen.add(name)
                    tap(f"module.{name}" if name in (INPUT, OUTPUT) else name, tensor)

            return hook

        parts = dict(module.named_modules())
        hooks = [parts[name].register_forward_hook(hook_for(name)) for name in names]
        hooks += [p.register_forward_pre_hook(_laid_out) for p in parts.values() if isinstance(p, nn.GroupNorm)]
        try:
            answer = _tensor_in(module(inputs))
        finally:
            for handle in hooks:
                handle.remove()
        if missing := [name for name in names if name not in seen]:
            raise InvalidValue("stages", missing[0], "submodules that run, and give a floating row an input row")
        if answer is None or not answer.is_floating_point() or answer.shape[:1] != values.shape[:1]:
            raise InvalidValue("module", type(module).__name__, "a module whose answer has a floating row an input row")
        tap(OUTPUT, answer)

    return read


def _laid_out(part: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """A norm's input copied in order: torch's derivative of group norm cannot read tangents with other strides."""
    return (given[0].clone(memory_format=torch.contiguous_format), *given[1:])


def _try(module: nn.Module, inputs: Tensor) -> None:
    """Say in one line that a module does not take these inputs."""
    try:
        with torch.no_grad():
            module(inputs)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = " ".join(str(error).split())[:160]
        allowed = f"a module that takes the encoded grid, {tuple(inputs.shape[1:])} numbers a row ({reason})"
        raise InvalidValue("module", type(module).__name__, allowed) from None


def _tensor_in(output: object) -> Tensor | None:
    """The first floating tensor of what a module returns: a tensor, a tuple, a dict or an object with fields."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() else None
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (tuple, list)):
        return next((found for part in output if (found := _tensor_in(part)) is not None), None)
    return None


@contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; everything as it was afterwards."""
    flags = {part: part.training for part in module.modules()}
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    devices = [p.device.index or 0 for p in module.parameters() if p.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices=devices):
        module.eval()
        try:
            yield
        finally:
            for part, flag in flags.items():
                part.training = flag
            for name, buffer in module.named_buffers():
                if not torch.equal(buffer, buffers[name]):
                    buffer.data.copy_(buffers[name])


def _check_stages(module: nn.Module, stages: Sequence[str]) -> list[str]:
    known = [name for name, _ in module.named_modules() if name]
    for name in stages:
        if name not in known:
            raise InvalidValue("stages", name, f"paths of submodules: {listed(known[:12])}")
    return list(stages)


def _found_stages(module: nn.Module, inputs: Tensor) -> list[str]:
    """The module's own parts in the order they run; a lone part, or a mere list of parts, is looked into."""
    called: list[str] = []
    shapes: dict[str, int] = {}
    newest: list[Tensor] = []

    def note(name: str, output: object) -> None:
        called.append(name)
        tensor = _tensor_in(output)
        if tensor is not None and tensor.ndim > 0:
            shapes.setdefault(name, len(tensor))
            newest[:] = [tensor]

    parts = {name: part for name, part in module.named_modules() if name}
    hooks = [
        part.register_forward_hook(lambda p, given, output, name=name: note(name, output))
        for name, part in parts.items()
    ]
    try:
        with torch.no_grad():
            answer = _tensor_in(module(inputs))
    finally:
        for handle in hooks:
            handle.remove()
    level = [name for name in parts if "." not in name]
    while True:
        opened = [
            inner
            for name in level
            for inner in (
                [name] if name in called or not list(parts[name].named_children()) else _children(parts, name)
            )
        ]
        if len(opened) == 1 and list(parts[opened[0]].named_children()):
            opened = _children(parts, opened[0])
        if opened == level:
            break
        level = opened
    run = [name for name in dict.fromkeys(called) if name in level]
    run = [name for name in run if shapes.get(name) == len(inputs)]
    is_answer = (
        bool(run)
        and called.count(run[-1]) == 1
        and called[-1] == run[-1]
        and answer is not None
        and torch.equal(newest[0], answer)
    )
    return run[:-1] if is_answer else run


def _children(parts: dict[str, nn.Module], name: str) -> list[str]:
    return [f"{name}.{child}" for child, _ in parts[name].named_children()]


# -- arguments -----------------------------------------------------------------------------------------------------


def parse_grid(text: str) -> FactorGrid:
    """`x=0:27,y=0:27`: whole numbers, both ends included; `b=0.25:1:4` has a number of values as well."""
    factors = []
    for part in text.split(","):
        name, equals, span = part.partition("=")
        bounds = span.split(":")
        try:
            low, high = float(bounds[0]), float(bounds[1])
            count = int(bounds[2]) if len(bounds) == 3 else round(high - low) + 1
        except (ValueError, IndexError):
            raise InvalidValue("grid", part, "NAME=LOW:HIGH or NAME=LOW:HIGH:COUNT, separated by commas") from None
        if not (equals and name.strip().isidentifier()) or len(bounds) > 3:
            raise InvalidValue("grid", part, "NAME=LOW:HIGH or NAME=LOW:HIGH:COUNT, separated by commas")
        factors.append(Factor(name.strip(), low, high, count))
    return FactorGrid(tuple(factors))


def _encoded(values: Tensor, encoding: Encode | Encoding | None, grid: FactorGrid) -> Tensor:
    if encoding is None:
        return values
    if not isinstance(encoding, Encoding):
        return encoding(values)
    return torch.cat([encoding.code(values[:, k], factor) for k, factor in enumerate(grid.factors)], dim=-1)


def _mask(holdout: Holdout | Tensor | np.ndarray | str | None, grid: FactorGrid) -> Tensor:
    if holdout is None:
        return torch.zeros(grid.size, dtype=torch.bool)
    if isinstance(holdout, str):
        holdout = HOLDOUTS.parse(holdout)
    mask = holdout.mask(grid) if isinstance(holdout, Holdout) else torch.as_tensor(holdout)
    if mask.dtype != torch.bool or mask.numel() != grid.size:
        raise InvalidValue("holdout", tuple(mask.shape), f"a boolean mask over the grid of shape {grid.shape}")
    return mask.flatten()


# -- measuring ---------------------------------------------------------------------------------------------------------


def _measure_stage(
    rows: dict[str, list[Any]], stage: Tensor, metric: Tensor, points: Tensor, mask: Tensor, grid: FactorGrid
) -> None:
    """Everything about one stage, added to the columns."""
    probes = probe_scores(stage, points, mask.to(stage.device))
    tuned = neuron_tuning(stage, grid.shape)
    several = len(grid.shape) > 1
    found = {
        "metric": metric,
        "volume": volume_element(metric),
        "features": torch.tensor(stage.shape[-1]),
        "stripe_index": tuned.stripe_index.nanmean(),
        "localisation_index": tuned.localisation_index.nanmean(),
        **{f"probe_{name}": score for name, score in probes.items()},
    }
    if several:
        found["factorization"] = local_factorization(metric)
        found["factorization_mean"] = mean_factorization(metric, "points")
        found["factorization_of_means"] = mean_factorization(metric, "means")
    if len(grid.shape) == 2:
        spectrum = schmidt_spectrum(stage.double() @ stage.double().mT, grid.shape)
        found["schmidt"] = torch.nn.functional.pad(spectrum, (0, SCHMIDT_MODES))[:SCHMIDT_MODES]
    for name, value in found.items():
        rows.setdefault(name, []).append(value.cpu().numpy())


def _answers(answers: Tensor, points: Tensor, mask: Tensor, grid: FactorGrid, targets: Tensor | None) -> dict[str, Any]:
    """Errors of the answers, and which kernel they are like."""
    found: dict[str, Any] = {}
    if targets is not None:
        error = squared_error(answers.cpu().double(), targets.flatten(1).cpu().double())
        found["error"] = (grid.names, error.reshape(grid.shape).numpy())
        found["id_error"] = ((), error[~mask].mean().item())
        if bool(mask.any()):
            found["ood_error"] = ((), error[mask].mean().item())
    if bool(mask.any()) and not bool(mask.all()):
        positions = torch.stack([f.position(points[:, k]) for k, f in enumerate(grid.factors)], dim=1).cpu()
        agreement = kernel_agreement(gram_matrix(answers.cpu()), positions, mask, permutations=PERMUTATIONS)
        found["kernel_agreement"] = ("kernel", [value.item() for value in agreement.agreement.values()])
        found["kernel"] = ("kernel", list(agreement.agreement))
        found["kernel_p"] = ((), agreement.p_value.item())
    return found


def _superposition(
    module: nn.Module,
    encoding: Encoding,
    grid: FactorGrid,
    points: Tensor,
    mask: Tensor,
    answers: Tensor,
    targets: Tensor,
    background: float,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """Both forms of superposition, for codes that have a block a factor."""
    codes = _encoded(points, encoding, grid).to(dtype)
    sizes = [encoding.size(factor) for factor in grid.factors]
    place = mask.to(points.device)

    @torch.no_grad()
    def signal(part: Tensor) -> Tensor:
        rows = [_tensor_in(module(few)) for few in part.split(ROWS_AT_ONCE)]
        return torch.cat([row.flatten(1) for row in rows if row is not None]) - background

    averaged = averaged_prediction(signal, codes[place], sizes, codes[~place])
    positions = torch.stack([f.position(points[:, k]) for k, f in enumerate(grid.factors)], dim=1)
    truth = targets.to(answers).flatten(1) - background
    scores = superposition_scores(answers - background, truth, positions, place, averaged)
    return {
        "superposition": ("prediction", [value.item() for value in scores.values()]),
        "prediction": ("prediction", list(scores)),
    }


def _dataset(
    rows: dict[str, list[Any]], order: list[str], result: dict[str, Any], grid: FactorGrid, mask: Tensor, how: str
) -> Diagnosis:
    names = grid.names
    axes = {
        "metric": (*names, "factor", "other_factor"), "volume": names, "factorization": names,
        "probe_in_sample": ("factor",), "probe_held_out": ("factor",), "schmidt": ("mode",),
    }  # fmt: skip
    columns = {}
    for name, values in rows.items():
        stacked = np.stack(values)
        dims = axes.get(name, ())
        on_grid = bool(dims) and dims[0] in names
        shape = (len(order), *(grid.shape if on_grid else ()), *stacked.shape[1 + on_grid :])
        columns[name] = (("stage", *dims), stacked.reshape(shape))
    coords = {factor.name: factor.values.numpy() for factor in grid.factors}
    data = {**columns, **result, "held_out": (names, mask.reshape(grid.shape).numpy())}
    labels = {"stage": order, "factor": list(names), "other_factor": list(names), **coords}
    return Diagnosis(data, coords=labels, attrs={"metric": how})


def _grid_axes(result: xarray.Dataset) -> list[str]:
    return [str(name) for name in result["held_out"].dims]


def _numbers(values: xarray.DataArray) -> list[str]:
    return ["–" if np.isnan(value) else f"{value:.3f}" for value in values.values]
