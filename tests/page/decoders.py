"""Subjects of the page's tests: our decoders after a few steps of training, and foreign ones."""

from functools import cache

import torch

from recombine.decoders import DECODERS
from tests.page.foreign import FOREIGN, foreign
from tests.page.library import LIBRARY, library
from tests.small import small_decoder, small_spec

OURS = [name for name, spec in DECODERS.items() if spec.direction == "decode"]
CODES = ["bump:variance=2", "rate:scale=unit", "ramp", "positional:pairs=3", "polar", "circular"]
"""One for each decoder of ours, in turn."""
EVERYONE = [*OURS, *FOREIGN, *LIBRARY]


@cache
def trained(name):
    """Task and network of a small spec after a dozen steps."""
    encoding = CODES[OURS.index(name) % len(CODES)] if name != "low_rank" else "bump"
    spec = small_spec(small_decoder(name), task={"size": 10, "encoding": encoding})
    task, module = spec.task, spec.module()
    inputs, targets = task.examples(task.grid.points)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for _ in range(12):
        optimizer.zero_grad()
        (module(inputs) - targets).square().mean().backward()
        optimizer.step()
    return task, module.eval()


def arguments(name):
    """What `explore` takes for a decoder of ours or a foreign one."""
    if name in FOREIGN:
        return {"module": foreign(name), "grid": "x=0:27,y=0:27", "holdout": "center:8:20"}
    if name in LIBRARY:
        return library(name)
    task, module = trained(name)
    return {
        "module": module, "grid": task.grid, "encode": task.encoding, "holdout": task.held_out, "targets": task.render,
        "background": task.background,
    }  # fmt: skip


def subject(name):
    """The same as the page has it."""
    from recombine.page.subject import subjects_of

    settings = {"targets": None, "background": None, "encode": None, "data": None, **arguments(name)}
    return subjects_of({name: settings.pop("module")}, **settings)[0]


def points(own, count, seed=0):
    """Positions of random points, half of them held out where any are; between grid values where factors allow."""
    from recombine.page.subject import smooth_factors

    generator = torch.Generator().manual_seed(seed)
    masks = (own.held_out, ~own.held_out) if bool(own.held_out.any()) else (~own.held_out,)
    places = []
    for mask in masks:
        inside = torch.nonzero(mask).flatten()
        places.append(inside[torch.randint(len(inside), (count // len(masks),), generator=generator)])
    positions = own.grid.positions(torch.cat(places)).double()
    smooth = torch.tensor(smooth_factors(own.encoding, own.grid)) & torch.tensor(own.name != "PatchTransformer")
    shift = torch.rand(positions.shape, dtype=torch.float64, generator=generator) - 0.5
    shifted = (positions + shift).clamp(min=0)
    shifted = torch.minimum(shifted, torch.tensor(own.grid.shape).double() - 1)
    return torch.where(smooth, shifted, positions)


def values_at(grid, positions):
    """Factor values at positions."""
    columns = []
    for k, factor in enumerate(grid.factors):
        below = positions[:, k].floor().long().clamp(max=max(factor.count - 2, 0))
        after = (below + 1).clamp(max=factor.count - 1)
        own = factor.values
        columns.append(own[below] + (own[after] - own[below]) * (positions[:, k] - below))
    return torch.stack(columns, dim=1)
