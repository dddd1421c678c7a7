"""Run-time checking of shapes by beartype, but for methods that return `Self`, which it refuses outside a class."""

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception


def checked(function):
    """The function with its annotations enforced, or as it is."""
    try:
        return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)  # an int will do for a float
    except BeartypeDecorHintPep673Exception:
        return function
