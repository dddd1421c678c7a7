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
from contextlib import ExitStack, contextmanager
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
    effective_rank,
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
from recombine.metrics.stages import INPUT, MEMORY, flat

OUTPUT = "output"
"""Name of the stage that is the module's answer."""
SCHMIDT_MODES = 16
"""Schmidt values kept a stage."""
PERMUTATIONS = 499
"""Permutations of the kernel test; a study that needs smaller p-values asks for more."""

RESERVED = frozenset(
    {
        "stage", "factor", "other_factor", "mode", "kernel", "prediction", "held_out", "metric", "volume", "features",
        "factorization", "factorization_mean", "factorization_of_means", "stripe_index",
        "localisation_index", "schmidt",
        "probe_in_sample", "probe_held_out", "error", "id_error", "ood_error", "kernel_agreement", "kernel_p",
        "superposition", "effective_rank",
    }
)  # fmt: skip
"""Names in a diagnosis that a factor cannot have."""
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
        columns["effective rank"] = [f"{value:.1f}" for value in self["effective_rank"].values]
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
    for name in grid.names:
        if name in RESERVED:
            raise InvalidValue("grid", name, f"names of factors other than {listed(sorted(RESERVED))}")
    encoding = ENCODINGS.parse(encode) if isinstance(encode, str) else encode
    mask = _mask(holdout, grid)
    place = next((p for p in (*module.parameters(), *module.buffers())), torch.empty(0))
    dtype = place.dtype if place.is_floating_point() else torch.float32
    points = grid.points.to(place.device, torch.float32 if place.device.type == "mps" else torch.float64)

    def encoded(values: Tensor) -> Tensor:
        inputs = _encoded(values, encoding, grid).clone()  # a module may work in place
        return inputs.to(dtype) if inputs.is_floating_point() else inputs

    with _undisturbed(module), _differentiable(module):
        _try(module, encoded(points[:2]))
        names = _check_stages(module, stages) if stages is not None else _found_stages(module, encoded(points[:2]))
        reader = module_reader(module, encoded, names)
        smooth = not isinstance(encoding, Encoding) or encoding.differentiable
        if geometry == "exact" and not smooth:
            raise InvalidValue("geometry", geometry, "differences, since one-hot codes have no derivative")
        metrics = _exact_metrics(reader, points, memory, geometry) if smooth and geometry != "differences" else None
        result: dict[str, Any] = {}
        rows: dict[str, list[Any]] = {}
        order = []
        answers = None
        for name, stage in features(reader, points, memory=memory):
            if not bool(torch.isfinite(stage).all()):
                raise InvalidValue("module", name, "a stage with finite activations at every grid point")
            spacing = tuple(factor.spacing for factor in grid.factors)
            metric = metrics[name] if metrics else finite_difference_metric(stage, grid.shape, spacing)
            order.append(name)
            _measure_stage(rows, stage, metric, points, mask, grid)
            answers = stage if name == OUTPUT else answers
        assert answers is not None
        truth = _checked_targets(targets, answers)
        if bool(mask.any()):
            result |= _superposition(module, encoding, grid, points, mask, answers, truth, background, encoded)
    result |= _answers(answers, points, mask, grid, truth)
    return _dataset(rows, order, result, grid, mask, "exact" if metrics else "finite differences")


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

        parts = dict(module.named_modules(remove_duplicate=False))
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
    buffers = {
        part: {name: (buffer, None if buffer is None else buffer.clone()) for name, buffer in part._buffers.items()}
        for part in module.modules()
    }
    tensors = (*module.parameters(), *module.buffers())
    devices = sorted({tensor.device.index or 0 for tensor in tensors if tensor.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        module.eval()
        try:
            yield
        finally:
            for part, flag in flags.items():
                part.training = flag
            for part, saved in buffers.items():
                part._buffers.clear()
                for name, (buffer, content) in saved.items():
                    if buffer is not None and content is not None and not torch.equal(buffer, content):
                        buffer.data.copy_(content)
                    part._buffers[name] = buffer


@contextmanager
def _differentiable(module: nn.Module) -> Iterator[None]:
    """Without the fused kernels that have no forward-mode derivative."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if recurrent:
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _exact_metrics(reader: Reader, points: Tensor, memory: int, geometry: str) -> dict[str, Tensor] | None:
    """Exact metric tensors; none where something has no derivative and that was not insisted on."""
    try:
        return metric_tensor(reader, points, memory=memory, repeated=True)
    except NotImplementedError as error:
        if geometry == "exact":
            reason = str(error).splitlines()[0][:120]
            raise InvalidValue("geometry", geometry, f"auto or differences for this module ({reason})") from None
    except InvalidValue as error:
        if geometry == "exact" or error.field != "encoding":
            raise
    return None


def _checked_targets(targets: Tensor | None, answers: Tensor) -> Tensor | None:
    """The right answers in the shape of the answers."""
    if targets is None:
        return None
    if targets.ndim == 0 or len(targets) != len(answers) or targets.numel() != answers.numel():
        raise InvalidValue("targets", tuple(targets.shape), f"{tuple(answers.shape)} numbers, a row a grid point")
    return targets.to(answers).reshape(answers.shape)


def _check_stages(module: nn.Module, stages: Sequence[str]) -> list[str]:
    known = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
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
            newest[:] = [tensor.clone()]  # what comes after may work in place

    parts = {name: part for name, part in module.named_modules(remove_duplicate=False) if name}
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
            if len(bounds) < 3 and high - low != count - 1:
                raise ValueError
        except (ValueError, IndexError, OverflowError):
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
    if bool(mask.all()):
        raise InvalidValue("holdout", int(mask.sum()), "a mask that keeps at least one combination")
    return mask.flatten().cpu()


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
        "effective_rank": effective_rank(torch.linalg.eigvalsh(_centred_gram(stage)).clamp(min=0)),
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


def _centred_gram(stage: Tensor) -> Tensor:
    centred = stage.double() - stage.double().mean(dim=0)
    return centred @ centred.mT


def _answers(answers: Tensor, points: Tensor, mask: Tensor, grid: FactorGrid, targets: Tensor | None) -> dict[str, Any]:
    """Errors of the answers, and which kernel they are like."""
    found: dict[str, Any] = {}
    if targets is not None:
        error = squared_error(answers.cpu().double(), targets.cpu().double())
        found["error"] = (grid.names, error.reshape(grid.shape).numpy())
        found["id_error"] = ((), error[~mask].mean().item())
        if bool(mask.any()):
            found["ood_error"] = ((), error[mask].mean().item())
    if bool(mask.any()) and not bool(mask.all()):
        positions = _positions(points, grid).cpu()
        agreement = kernel_agreement(gram_matrix(answers.cpu()), positions, mask, permutations=PERMUTATIONS)
        found["kernel_agreement"] = ("kernel", [value.item() for value in agreement.agreement.values()])
        found["kernel"] = ("kernel", list(agreement.agreement))
        found["kernel_p"] = ((), agreement.p_value.item())
    return found


def _superposition(
    module: nn.Module,
    encoding: Encode | Encoding | None,
    grid: FactorGrid,
    points: Tensor,
    mask: Tensor,
    answers: Tensor,
    truth: Tensor | None,
    background: float,
    encoded: Encode,
) -> dict[str, Any]:
    """The memorised form for any module, the averaged one for codes that have a block a factor."""
    place, averaged = mask.to(points.device), None

    @torch.no_grad()
    def signal(part: Tensor) -> Tensor:
        rows = [_tensor_in(module(few.clone())) for few in part.split(ROWS_AT_ONCE)]
        return torch.cat([flat(row) for row in rows if row is not None]) - background

    if isinstance(encoding, Encoding):
        codes, sizes = encoded(points), [encoding.size(factor) for factor in grid.factors]
        averaged = averaged_prediction(signal, codes[place], sizes, codes[~place])
    scores = superposition_scores(
        answers - background, _positions(points, grid), place,
        truth=None if truth is None else truth - background, averaged=averaged,
    )  # fmt: skip
    return {
        "superposition": ("prediction", [value.item() for value in scores.values()]),
        "prediction": ("prediction", list(scores)),
    }


def _positions(points: Tensor, grid: FactorGrid) -> Tensor:
    return torch.stack([factor.position(points[:, k]) for k, factor in enumerate(grid.factors)], dim=1)


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
