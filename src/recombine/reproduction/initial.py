"""Networks as they are before the first step of training, in the form of finished runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recombine.decoders import StagedDecoder
from recombine.reproduction.study import DONE
from recombine.specs import RunSpec
from recombine.store import Run


@dataclass(frozen=True)
class InitialRun(Run):
    """A spec's network with its first weights; it has no scores and no arrays, and lies in no store."""

    start: RunSpec

    @property
    def status(self) -> str:
        return DONE

    @property
    def scores(self) -> dict[str, float]:
        return {}

    @cached_property
    def spec(self) -> RunSpec:
        return self.start

    def weights(self) -> dict[str, Any]:
        return {name: value.numpy() for name, value in self.module().state_dict().items()}

    def arrays(self) -> dict[str, Any]:
        return {}

    def module(self) -> StagedDecoder:
        return self.start.module().eval()


def initial_runs(specs: Iterable[RunSpec]) -> list[InitialRun]:
    """The networks of some specs before training, to be measured as finished runs are.

    Parameters
    ----------
    specs
        Of any seeds.

    Returns
    -------
    list of InitialRun
        One per spec, in their order.

    Examples
    --------
    >>> [run] = initial_runs([RunSpec(seed=3)])
    >>> run.status, run.spec.seed, run.scores
    ('done', 3, {})
    """
    return [InitialRun(spec.digest, Path(), spec) for spec in specs]
