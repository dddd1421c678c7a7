"""Helpers for tests of compiled kernels."""

from contextlib import contextmanager

import pytest
import torch

from recombine import kernels
from recombine.training import Ensemble, fit

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(not kernels.available("cpu"), reason=f"no kernels: {kernels.why_not('cpu')}")


def trained(spec):
    """The state of one network after training."""
    ensemble = Ensemble([spec], CPU)
    state = ensemble.initial()
    for _ in fit(ensemble, state):
        pass
    return state


def near(actual, expected, least=1e-3):
    """To float32's accuracy, of the largest number or `least`: Winograd's sums have cancelled larger ones."""
    scale = max(float(expected.detach().abs().max()), least)
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=0, atol=3e-5 * scale)


@contextmanager
def threads(count):
    """Let torch use this many threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
