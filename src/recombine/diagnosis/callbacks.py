"""A callback that diagnoses a module at regular intervals during training without affecting the training."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import torch
import xarray
from torch import nn

from recombine.diagnosis.diagnosing import diagnose, selected
from recombine.diagnosis.result import Diagnosis
from recombine.diagnosis.running import unwrapped
from recombine.errors import InvalidValue, RecombineError
from recombine.factors import Grid
from recombine.metrics.registry import STAGE_METRICS

if TYPE_CHECKING:
    import pandas

USUAL = (
    "id_error", "ood_error", "ood_over_mean", "factorization_mean", "partial_factorization", "log_volume_std",
)  # fmt: skip
"""Metrics logged by default, if they can be measured."""
CASES = ("stage", "kernel", "prediction")
"""Dimensions whose entries are logged separately; metrics are averaged over all other dimensions."""


class DiagnosisCallback:
    """Measures a module during training, and records and logs the metrics.

    The module's state is restored exactly, so training is bit-identical with and without the callback.

    Parameters
    ----------
    grid
        Factors and their values, as for `diagnose`.
    every
        Measurement interval: steps that are not multiples of it are skipped.
    metrics
        Variables of the diagnosis to log (docs/metrics.md). Default: errors on kept and held-out combinations,
        factorization, partial factorization, and the standard deviation of the log volume, where measurable.
    log
        A function that takes a dictionary of numbers and the step, such as `wandb.log`.
    prefix
        Prefix for the logged names.
    **settings
        Other arguments of `diagnose`: `encode`, `holdout`, `targets`, `stages`, `data`, `points`, ….

    Examples
    --------
    >>> import torch
    >>> import recombine as rc
    >>> task = rc.BumpTask(size=6, holdout="center:2:4")
    >>> module = rc.MLP(width=8, depth=1).build(rc.RunSpec(task=task).interface)
    >>> inputs, images = task.examples(task.grid.points[~task.held_out])
    >>> callback = rc.DiagnosisCallback(
    ...     task.grid, every=10, encode=task.encoding, holdout=task.holdout, targets=task.render(task.grid.points),
    ...     metrics=["ood_error", "factorization_mean"],
    ... )
    >>> optimizer = torch.optim.Adam(module.parameters())
    >>> for step in range(21):
    ...     loss = (module(inputs) - images).square().mean()
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     numbers = callback(module, step)
    >>> list(callback.history.index)
    [0, 10, 20]
    >>> list(callback.history.columns)
    ['ood_error', 'factorization_mean/input', 'factorization_mean/stages.layer1', 'factorization_mean/output']
    >>> callback.dataset["factorization_mean"].dims
    ('step', 'stage')
    """

    def __init__(
        self, grid: Grid | None = None, *, every: int = 1, metrics: Sequence[str] | None = None,
        log: Callable[[dict[str, float], int], object] | None = None, prefix: str = "diagnosis/", **settings: Any,
    ) -> None:  # fmt: skip
        if every < 1:
            raise InvalidValue("every", every, "at least 1")
        self.every, self.required = every, [metrics] if isinstance(metrics, str) else metrics
        self.names = list(USUAL if self.required is None else self.required)
        selected(self.names, settings.get("thorough", False))  # fail now rather than after hours of training
        inspect.signature(diagnose).bind(None, grid, metrics=self.names, **settings)
        self.grid, self.log, self.prefix = grid, log, prefix
        self.settings = {"progress": False, **settings}  # the loop around it may have a bar of its own
        self.calls = 0
        self.measured: list[tuple[int, Diagnosis]] = []
        """The step and the requested variables for each measurement."""

    def __call__(self, module: nn.Module, step: int | None = None) -> dict[str, float] | None:
        """Measure the module if the step is a multiple of `every`, and return the metrics by name.

        Return None at skipped steps and, in distributed training, on all ranks except 0.

        Parameters
        ----------
        module
            The module; `torch.compile`, `DistributedDataParallel` and `DataParallel` wrappers are removed.
        step
            The step or epoch. Default: the number of previous calls.
        """
        step = self.calls if step is None else step
        self.calls += 1
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if step % self.every or (distributed and torch.distributed.get_rank() != 0):
            return None
        result = diagnose(unwrapped(module), self.grid, metrics=self.names, **self.settings)
        for name in self.required or ():
            if name not in result:
                metric = STAGE_METRICS.by_column().get(name)
                needed = "targets and a hold-out" if metric is None else result.left_out[metric.name]
                raise InvalidValue("metrics", name, f"variables that can be measured here ({name} needs {needed})")
        requested = result.drop_vars([name for name in result.data_vars if name not in self.names])
        self.measured.append((step, requested))
        numbers = {f"{self.prefix}{name}": value for name, value in self._numbers(requested).items()}
        if self.log is not None:
            self.log(dict(numbers), step)
        return numbers

    def _numbers(self, result: Diagnosis) -> dict[str, float]:
        return {name: value for own in self.names if own in result for name, value in _cases(own, result[own])}

    @property
    def history(self) -> pandas.DataFrame:
        """A DataFrame with one row per measurement, indexed by step; column names omit the prefix."""
        import pandas

        index = pandas.Index([step for step, _ in self.measured], name="step", dtype=int)
        return pandas.DataFrame([self._numbers(own) for _, own in self.measured], index=index)

    @property
    def dataset(self) -> xarray.Dataset:
        """The requested variables with all their dimensions, concatenated along `step`."""
        if not self.measured:
            return xarray.Dataset(coords={"step": []})
        steps = xarray.DataArray([step for step, _ in self.measured], dims="step", name="step")
        parts = [xarray.Dataset(own.data_vars, own.coords, own.attrs) for _, own in self.measured]
        return xarray.concat(parts, steps, data_vars="all", coords="minimal", compat="override", join="outer",
                             combine_attrs="override")  # fmt: skip

    def lightning(self, module: str | None = None, *, each: Literal["epoch", "step"] = "epoch") -> Any:
        """Return a callback for Lightning's `Trainer(callbacks=[…])`, which logs with `LightningModule.log_dict`.

        Parameters
        ----------
        module
            Path of the submodule that maps codes to outputs, e.g. `decoder`. Default: the LightningModule itself.
        each
            Whether `every` counts epochs or optimizer steps.
        """
        if each not in ("epoch", "step"):
            raise InvalidValue("each", each, "epoch or step")
        # try an already imported package first, since its trainer does not accept the other package's callbacks
        for name in sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules):
            with suppress(ImportError):
                return _lightning_class(import_module(name))(self, module, each)
        raise RecombineError("lightning is not installed: pip install lightning")


def _cases(name: str, variable: xarray.DataArray) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each entry along `CASES`, averaged over factors and points; skip label columns."""
    column = STAGE_METRICS.columns().get(name)
    if column is not None and column.labels:
        return
    cases = [dim for dim in variable.dims if dim in CASES]
    values = variable.mean([dim for dim in variable.dims if dim not in cases])
    if not cases:
        yield name, float(values)
        return
    for case, value in zip(values[cases[0]].values, values.values, strict=True):
        yield f"{name}/{case}", float(value)


@cache
def _lightning_class(package: Any) -> Any:
    """Define the callback class on demand, because Lightning is not a dependency."""

    class LightningDiagnosis(package.Callback):
        """Calls a `DiagnosisCallback` at the end of epochs or batches and logs its numbers."""

        def __init__(self, callback: DiagnosisCallback, path: str | None, each: str) -> None:
            super().__init__()
            self.callback, self.path, self.each = callback, path, each

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if self.each == "epoch":
                self._measure(pl_module, trainer.current_epoch)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
            if self.each == "step":
                self._measure(pl_module, trainer.global_step)

        def _measure(self, pl_module: Any, step: int) -> None:
            numbers = self.callback(pl_module if self.path is None else pl_module.get_submodule(self.path), step)
            if numbers is not None:
                pl_module.log_dict(numbers, rank_zero_only=True)

    return LightningDiagnosis
