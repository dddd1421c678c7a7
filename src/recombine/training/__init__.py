"""Training: many members of one architecture in one program."""

from recombine.training.devices import (
    DEFAULT_PRECISION,
    DEVICES,
    check_precision,
    device_name,
    kernels_name,
    resolve_device,
)
from recombine.training.ensemble import Ensemble, State, program_of
from recombine.training.evaluate import Evaluator, evaluate, group_by_evaluation, scores
from recombine.training.fit import fit
from recombine.training.memory import fitting_members, within

__all__ = [
    "DEFAULT_PRECISION",
    "DEVICES",
    "Ensemble",
    "Evaluator",
    "State",
    "check_precision",
    "device_name",
    "evaluate",
    "fit",
    "fitting_members",
    "group_by_evaluation",
    "kernels_name",
    "program_of",
    "resolve_device",
    "scores",
    "within",
]
