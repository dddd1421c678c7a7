"""Draws public calls with one argument spoilt; run as a program, in which no test hook checks types first.

    python -m tests.spoilt.drawing EXAMPLES [PART]

Every argument is given every one of a list of values (or each PARTth of them, others for the next argument), then
hypothesis draws more of both. Accepted are success and a
one-line error of ours; what else happens is reported.
"""

import os
import resource
import signal
import sys
import tempfile
import warnings

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import recombine as rc
from recombine.errors import quoted, reason_of
from tests.spoilt.calls import all_calls, spec

MEMORY = 16 << 30
SECONDS = 30
"""What one call may take: a mistake must not fill the machine or keep it busy."""
CALLS = all_calls()
ARGUMENTS = [(name, argument) for name, (_, maker) in CALLS.items() for argument in maker()]
NUMBERS = [0, -1, 1, 2.5, float("nan"), float("inf"), -float("inf"), 10**12, 10**30, -(10**30), 10**5000, 1e300, 1 + 2j]
TEXTS = ["", "x", "exakt", "x\0y", "\ud800", "center:0:99", "x=0:1e300", b"bytes"]
COLLECTIONS = [
    (), [], {}, [[1, 2], [3]], {1: 2}, {"kind": 3}, {"kind": "center"}, {"a": torch.ones(3)}, range(3), (10**9, 10**9),
    (0,), (9,), (-1, -9), ["0", "zz"], {1}, [object()],
]  # fmt: skip
OBJECTS = [
    None, True, Ellipsis, int, object(), lambda *given, **named: None, nn.Linear(2, 2), rc.Factor("a", 0, 1, 2),
    rc.FactorGrid((rc.Factor("a", 0, 1, 2),)), spec(), torch.float32, torch.device("cpu"),
]  # fmt: skip
ARRAYS = [
    np.arange(3), np.array("s"), np.array(3.0), np.zeros((3, 3), dtype=">f8"), np.array([{}], dtype=object),
    np.zeros(9, dtype=[("a", "f4")]), torch.ones(3, 3).to_sparse(),
]  # fmt: skip
MISSHAPEN = [
    torch.tensor(3.0), torch.zeros(0), torch.zeros(2, 0), torch.ones(9), torch.ones(3, 3), torch.ones(2, 3, 4, 5),
    torch.full((9, 4), torch.nan), torch.full((9, 9), torch.inf), torch.full((9, 2, 2), torch.nan),
    torch.ones(9, dtype=torch.bool), torch.zeros(9, dtype=torch.bool), torch.ones(9, 9, dtype=torch.int64),
]  # fmt: skip
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bool, torch.int64, torch.complex64]


@st.composite
def tensors(draw):
    """Tensors of any small shape and kind, perhaps with NaN or infinity in them."""
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 9]), max_size=4))
    fill = draw(st.sampled_from([0.0, 1.0, float("nan"), float("inf"), "random"]))
    dtype = draw(st.sampled_from(DTYPES))
    if fill == "random" or not dtype.is_floating_point:
        return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)
    return torch.full(shape, fill, dtype=dtype)


LISTED = [*NUMBERS, *TEXTS, *COLLECTIONS, *OBJECTS, *ARRAYS, *MISSHAPEN]
NESTED = st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=8)
SPOILT = st.one_of(
    st.sampled_from(LISTED), tensors(), st.integers(), st.floats(), st.text(), st.binary(), NESTED,
    st.integers().map(lambda number: (number for _ in range(2))),
)  # fmt: skip


def check(call, value):
    """Call with one argument spoilt; raises unless that succeeds or is refused in one line."""
    name, argument = call
    function, maker = CALLS[name]
    message = "one line"
    signal.alarm(SECONDS)
    try:
        function(**{**maker(), argument: value})
    except rc.RecombineError as error:
        message = str(error)
    finally:
        signal.alarm(0)
    assert message.strip(), "nothing is said"
    assert len(message.splitlines()) == 1, message


def too_long(*_):
    raise TimeoutError(f"{SECONDS} seconds")


def failures(part):
    """What goes wrong with each argument and each of the listed values, or each `part`th of them."""
    for number, call in enumerate(ARGUMENTS):
        for value in LISTED[number % part :: part]:
            try:
                check(call, value)
            except Exception as error:
                yield f"{call[0]}({call[1]}={quoted(value)}): {reason_of(error)}"


def main(examples, part=1):
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(tempfile.mkdtemp())  # a text may be taken for the path of a store
    for function, maker in CALLS.values():
        function(**maker())  # the calls themselves are valid
    if lines := list(failures(part)):
        sys.exit("\n".join(lines))
    drawn = given(st.sampled_from(ARGUMENTS), SPOILT)(check)
    settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )(drawn)()  # fmt: skip
    print(f"{len(ARGUMENTS)} arguments of {len(CALLS)} calls")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
