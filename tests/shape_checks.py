"""Run-time checking of shapes: beartype where it can, nothing where it cannot read an annotation (`Self`)."""

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintException


def checked(function):
    """The function with its annotations enforced, or as it is."""
    try:
        return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)  # an int will do for a float
    except BeartypeDecorHintException:
        return function
