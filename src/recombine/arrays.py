"""Arrays that a user gives in a `.npy` file: read whole, or refused in one line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.errors import InvalidValue, reason_of
from recombine.files import read_given

if TYPE_CHECKING:
    import numpy


def read_array(path: Path, field: str) -> numpy.ndarray:
    """The one array of a `.npy` file, in this machine's byte order."""
    import numpy

    try:
        array = numpy.load(io.BytesIO(read_given(path, field)), allow_pickle=False)
    except InvalidValue:
        raise
    except Exception as error:  # numpy parses the header as Python: syntax, memory, recursion may all go wrong there
        reason = reason_of(error)
        if "allow_pickle" in reason:  # numpy's advice to load it unsafely
            reason = "it holds Python objects, or something else than an array"
        raise InvalidValue(field, str(path), f"a whole .npy file ({reason})") from error
    if not isinstance(array, numpy.ndarray):
        raise InvalidValue(field, str(path), "a .npy file with one array, not an .npz archive")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_numbers(array: numpy.ndarray, field: str) -> numpy.ndarray:
    """The array as finite float64 numbers, which hold whole numbers, extended precision and truth values alike."""
    import numpy

    if array.dtype.kind not in "biuf":
        raise InvalidValue(field, f"an array of {array.dtype}", "an array of real numbers")
    with numpy.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as such
        numbers = numpy.ascontiguousarray(array, dtype=numpy.float64)
    if not numpy.isfinite(numbers).all():
        raise InvalidValue(field, "NaN or infinity", "finite numbers only")
    return numbers.reshape(array.shape)  # `ascontiguousarray` gives a lone number an axis
