"""What the arena compares, as data: tasks, remedies with eight configurations each, seeds, and how one is chosen.

Every remedy, the plain decoder included, is tuned alike: the same number of configurations, each trained with the same
seeds on a task without its held-out combinations, and judged by R² on a second hold-out inside the kept ones. So the
test region takes no part in the choice: in tuning its combinations are left out altogether.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Annotated, Any

import torch
from pydantic import Field

from recombine.decoders import CNN, AnyDecoder
from recombine.errors import InvalidValue, listed
from recombine.holdouts import AnyHoldout, Mask
from recombine.records import Frozen
from recombine.remedies import REMEDIES
from recombine.remedies.base import Assumption
from recombine.specs import Recipe, RunSpec
from recombine.tasks import BallsTask, BumpsTask, BumpTask, SpriteTask, Task

PLAIN = "none"
"""Name of the base itself: the plain decoder on the kept combinations."""
FILE = "protocol.json"
"""The protocol in a results folder."""
CEILING = "whole grid"
"""Name of the plain decoder trained on all combinations."""
RATES = (5e-4, 1e-3, 2e-3, 4e-3)
FEW_RATES = (1e-3, 3e-3)
OWN_RATES = (2.5e-4, 5e-4, 7e-4, 1e-3, 1.4e-3, 2e-3, 4e-3, 8e-3)
"""Learning rates of a remedy about which nothing else is known."""
TIMES = (0.1, 1.0, 10.0, 100.0)
"""Multiples of a loss term's default weight."""


class Configuration(Frozen):
    """A setting of a remedy: what it changes about a task's base.

    Examples
    --------
    >>> from recombine.arena import Configuration
    >>> import recombine as rc
    >>> own = Configuration(remedy="hessian:weight=1e-4", lr=3e-3)
    >>> str(own), own.apply(rc.RunSpec()).recipe.lr
    ('hessian:weight=1e-4, lr 0.003', 0.003)
    """

    remedy: str = PLAIN
    """The remedy with its settings, as text; `none` for the base itself."""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate."""
    decoder: AnyDecoder | None = None
    """Decoder in place of the base's."""

    def apply(self, base: RunSpec) -> RunSpec:
        """Return the base with this configuration."""
        spec = base.replace(recipe=base.recipe.replace(lr=self.lr), decoder=self.decoder or base.decoder)
        return spec if self.remedy == PLAIN else spec.with_remedy(self.remedy)

    def __str__(self) -> str:
        decoder = "" if self.decoder is None else f", {self.decoder}"
        return f"{self.remedy}, lr {self.lr:g}{decoder}"


class ArenaTask(Frozen):
    """A task of the arena: its base and the second hold-out, by which configurations are chosen."""

    base: RunSpec
    """Task, plain decoder and recipe."""
    inner: AnyHoldout
    """The second hold-out, inside the kept combinations; in the arena it is that of `inner_holdout`."""
    about: str = ""
    """What the task is, and where it comes from."""

    @property
    def tuning(self) -> RunSpec:
        """The base without its held-out combinations, and with the second hold-out in their place."""
        task, excluded = self.base.task, self.base.task.holdout
        if bool(task.left_out.any()):
            excluded = Mask(points=task.grid.positions(torch.nonzero(task.held_out | task.left_out).flatten()).tolist())
        return self.base.replace(task=task.replace(excluded=excluded, holdout=self.inner, region="kept"))


class Rule(Frozen):
    """How a remedy is prescribed; registered with the arena, on whose tasks it is validated."""

    holds: float = 0.5
    """An assumption fails if it explains less than this share."""
    rank: Annotated[int, Field(ge=2)] = 4
    """Products whose sum is of low rank: as many as the remedy `multilinear` has."""
    similar: Annotated[float, Field(gt=0)] = 0.25
    """Root mean square difference of assumptions at which a task's weight is 61 % of that of an equal task."""
    tried: int = 2
    """Remedies that are tried."""
    error_rate: float = 0.05
    """Of the tests, over all tried remedies, whether one is better than the plain decoder."""
    learnt: float = 0.9
    """Least R² on kept images of a decoder that has learnt them; what has not is never prescribed."""
    assumes: dict[str, tuple[Assumption, ...]] = Field(default_factory=dict)
    """What remedies assume, if it is not what their classes say."""

    def assumed(self, remedy: str) -> tuple[Assumption, ...]:
        """Return what a remedy assumes, given by name, with or without settings."""
        name = remedy.partition(":")[0]
        return self.assumes.get(name, REMEDIES[name].assumes if name in REMEDIES else ())

    def failing(self, remedy: str, assumptions: Mapping[str, float | None]) -> list[str]:
        """Return which assumptions of a remedy fail, rounded as they are shown; what cannot be tested does not."""
        return [name for name in self.assumed(remedy) if self.fails(assumptions.get(name))]

    def fails(self, value: float | None) -> bool:
        """Return whether an assumption fails."""
        return value is not None and round(value, 2) < self.holds


class Protocol(Frozen):
    """Everything the arena's numbers depend on.

    Examples
    --------
    >>> from recombine.arena import PROTOCOL
    >>> len(PROTOCOL.tasks), len(PROTOCOL.remedies), {len(own) for own in PROTOCOL.remedies.values()}
    (7, 21, {8})
    """

    tasks: dict[str, ArenaTask]
    """Tasks by name."""
    remedies: dict[str, tuple[Configuration, ...]]
    """Configurations by remedy, as many for each."""
    tuning_seeds: tuple[int, ...] = tuple(range(3000, 3004))
    """Seeds of every configuration in tuning."""
    seeds: tuple[int, ...] = tuple(range(2000, 2032))
    """Seeds of the chosen configurations."""
    composes: float = 0.9
    """Least R² on held-out and on kept combinations with which a network composes."""
    prescription: Rule = Rule()
    """How a remedy is prescribed from the results."""

    def part(self, tasks: Iterable[str] = (), remedies: Iterable[str] = ()) -> Protocol:
        """Return the protocol of some tasks and remedies (default: all); the plain decoder is always among them.

        A name that the protocol lacks may be that of any registered remedy, with settings as text: it is tuned over
        eight learning rates.
        """
        tasks, remedies = list(tasks), list(remedies)
        if unknown := [name for name in tasks if name not in self.tasks]:
            raise InvalidValue("task", unknown[0], f"one of {listed(self.tasks)}")
        own = {name: self.remedies.get(name) or configurations(name) for name in remedies}
        plain = {PLAIN: self.remedies[PLAIN]} if PLAIN in self.remedies else {}
        return self.replace(
            tasks={name: self.tasks[name] for name in tasks or self.tasks},
            remedies={**plain, **own} if remedies else self.remedies,
        )

    def with_task(self, name: str, spec: RunSpec, inner: Any) -> Protocol:
        """Return the protocol with a task of one's own."""
        return self.replace(tasks={**self.tasks, name: ArenaTask(base=spec, inner=inner)})


def configurations(
    remedy: str, rates: Iterable[float] = OWN_RATES, settings: Iterable[str] = ("",), depths: Iterable[int] = ()
) -> tuple[Configuration, ...]:
    """Return a configuration for every learning rate and setting, or every learning rate and depth of the CNN."""
    if remedy != PLAIN:
        REMEDIES.parse(remedy)
    texts = [":".join(filter(None, (remedy, setting))) for setting in settings]
    decoders: list[CNN | None] = [CNN(width=WIDTH, depth=depth) for depth in depths] or [None]
    return tuple(
        Configuration(remedy=text, lr=lr, decoder=decoder) for text, decoder, lr in product(texts, decoders, rates)
    )


WIDTH = 32
"""Channels of every convolution: half of the paper's, since the arena trains thousands of networks."""
BASE = RunSpec(decoder=CNN(width=WIDTH, depth=4), recipe=Recipe(steps=2000, batch=32, precision="bf16"))


def _task(about: str, task: Task, inner: str) -> ArenaTask:
    return ArenaTask(base=BASE.replace(task=task), inner=inner, about=about)


SPRITES = SpriteTask(
    size=64, sprites=2, shapes=("square", "disc"), blocks=(5, 5), training="each",
    factors=tuple(f"{name}{suffix}={values}" for suffix in ("2", "") for name, values in
                  {"x": "8..55..4", "y": "13..51..4", "shape": 2, "scale": "8..14..2", "hue": 2}.items()),
    holdout="orthogonal:base=0:blocks=5,5",
)  # fmt: skip
TASKS: Mapping[str, ArenaTask] = {
    "bump": _task(
        "A bump at (x, y) on 28 × 28 pixels; the box in the middle is held out (Liang et al. 2025).",
        BumpTask(training="each"), "corner:factors=x,y:start=20,20",
    ),
    "square": _task(
        "A square at (x, y) on 64 × 64 pixels; a quadrant is held out (Liu et al. 2018).",
        SpriteTask(
            size=64, shapes=("square",), factors=("x=5..58..28", "y=5..58..28"), fixed=("scale=9",), training="each",
            holdout="corner:14",
        ),
        "corner:factors=x,y:start=7,7:side=low",
    ),
    "bumps": _task(
        "Bumps with four factors, of which at most two are beyond their thresholds in training.",
        BumpsTask(
            factors=("x=8", "y=8", "size=4", "intensity=4"), training="each", holdout="orthotopic:2",
        ),
        "corner:factors=x,y:start=1,1:side=low",
    ),
    "balls": _task(
        "Two balls that move up and down; only one at a time is beyond the middle (Lachapelle et al. 2023).",
        BallsTask(size=64, factors=("y=20", "y2=20"), training="each", holdout="L_shaped"),
        "corner:factors=y,y2:start=3,3:side=low",
    ),
    "orthogonal": _task(
        "Two sprites of five factors each; in training one of them is always the same (Wiedemer et al. 2023).",
        SPRITES, "corner:factors=x2,y2:start=2,2",
    ),
    "diagonal": _task(
        "Two sprites of five factors each, which are nearly alike in training (Wiedemer et al. 2023).",
        SPRITES.replace(holdout="diagonal:1:blocks=5,5"), "corner:factors=x2,x:start=0,0:side=low",
    ),
    "shapes": _task(
        "Shapes in grey with five factors, as dSprites has; hearts on the right are held out.",
        SpriteTask(
            size=64, factors=("shape=3", "x=8", "y=8", "scale=3", "rotation=4"), training="each",
            holdout="shape==heart,x>=32",
        ),
        "corner:factors=shape,x:start=0,1:side=low",
    ),
}  # fmt: skip


def _weights(remedy: str) -> list[str]:
    default = REMEDIES[remedy].model_fields["weight"].default
    return [f"weight={times * default:g}" for times in TIMES]


def _terms(*remedies: str) -> dict[str, tuple[Configuration, ...]]:
    return {name: configurations(name, FEW_RATES, _weights(name)) for name in remedies}


def _sizes(remedy: str, *settings: str) -> dict[str, tuple[Configuration, ...]]:
    return {remedy: configurations(remedy, RATES, settings)}


REMEDY_CONFIGURATIONS: Mapping[str, tuple[Configuration, ...]] = {
    **{name: configurations(name, RATES, depths=(2, 4)) for name in (PLAIN, "isolated", "additive", "occlusion")},
    **_sizes("multilinear", "rank=1", "rank=4"),
    **_sizes("broadcast", f"width={WIDTH}", f"width={2 * WIDTH}"),
    **_sizes("coordconv", f"width={WIDTH}:depth=2", f"width={WIDTH}:depth=4"),
    **_sizes("coordinate", "width=64", "width=128"),
    **_sizes("implicit", "activation=relu", "activation=sine"),
    **_sizes("hypernetwork", "form=linear", "form=film"),
    **_sizes("wider", "times=2", "times=4"),
    "low_rank": configurations(
        "low_rank", FEW_RATES,
        ["entropy=0:variance=0", "entropy=0:variance=1e-7", "entropy=1e-6:variance=1e-7", "entropy=0:variance=1e-5"],
    ),
    "dropout": configurations("dropout", FEW_RATES, [f"rate={rate:g}" for rate in (0.05, 0.1, 0.2, 0.4)]),
    "weight_decay": configurations(
        "weight_decay", FEW_RATES, [f"weight_decay={decay:g}" for decay in (0.03, 0.1, 0.3, 1.0)]
    ),
    **_terms("interaction", "contrast", "hessian", "orthogonal_jacobian", "jacobian_l1", "mixup", "consistency"),
}  # fmt: skip
PLANTED = "planted function"
GATES: Mapping[str, str] = {
    **dict.fromkeys(REMEDY_CONFIGURATIONS, PLANTED),
    **dict.fromkeys((PLAIN, CEILING), "baseline"),
    **dict.fromkeys(("wider", "dropout", "weight_decay"), "control"),
    "isolated": "paper's number (C23)",
}
"""How it is known that a remedy works as its paper says: it composes a function that it should compose and a plain
network does not (`tests/remedies`), or reaches the paper's own number. Controls are not expected to help."""
ASSUMED = {name: REMEDIES[name].assumes for name in REMEDY_CONFIGURATIONS if name != PLAIN}
PROTOCOL = Protocol(tasks=dict(TASKS), remedies=dict(REMEDY_CONFIGURATIONS), prescription=Rule(assumes=ASSUMED))
