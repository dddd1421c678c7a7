"""Training of many members with the same architecture together."""

from recombine.training.devices import (
    DEFAULT_PRECISION,
    DEVICES,
    check_precision,
    device_name,
    kernels_name,
    resolve_device,
)
from recombine.training.ensemble import Ensemble, State, group_by_rendering, program_of
from recombine.training.evaluate import Evaluator, evaluate, samples, scores, standard_errors
from recombine.training.fit import fit, fitting_members, within
