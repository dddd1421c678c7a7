"""The diagnosis as a callback of Lightning, whose class is made when it is asked for: Lightning is no dependency."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import nn

from recombine.checks import one_of
from recombine.errors import InvalidValue, RecombineError

if TYPE_CHECKING:
    from recombine.diagnosis.callbacks import DiagnosisCallback

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The same library under its two names; a trainer of one does not know callbacks of the other."""
EACH = ("epoch", "step")


def lightning_callback(callback: DiagnosisCallback, path: str | None, each: str) -> Any:
    """A Lightning callback that calls ours; see `DiagnosisCallback.lightning`."""
    one_of("each", each, EACH)
    if path is not None and not isinstance(path, str):
        raise InvalidValue("module", path, "a path of a part of the LightningModule, as 'decoder'")
    return _adapter(_package())(callback, path, each)


def _package() -> str:
    """The library that is in use, else the first that is installed."""
    for name in sorted(PACKAGES, key=lambda name: name not in sys.modules):
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    raise RecombineError("lightning: it is not installed; pip install lightning")


@cache
def _adapter(package: str) -> Any:
    base: Any = import_module(package).Callback

    class LightningDiagnosis(base):
        """Calls a `DiagnosisCallback` at the end of epochs or batches, and logs its numbers."""

        def __init__(self, callback: DiagnosisCallback, path: str | None, each: str) -> None:
            super().__init__()
            self.callback, self.path, self.each = callback, path, each

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if self.each == "epoch":
                self._measure(pl_module, trainer.current_epoch)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:  # fmt: skip
            if self.each == "step":
                self._measure(pl_module, trainer.global_step)

        def _measure(self, pl_module: Any, step: int) -> None:
            numbers = self.callback(_part(pl_module, self.path), step)
            if numbers is not None:
                pl_module.log_dict(numbers, rank_zero_only=True)

    return LightningDiagnosis


def _part(module: nn.Module, path: str | None) -> nn.Module:
    """The part of a module at a path."""
    try:
        return module if path is None else module.get_submodule(path)
    except AttributeError:
        parts = [name for name, _ in module.named_children()]
        raise InvalidValue("module", path, f"a path of a part, as {', '.join(parts[:6])}") from None
