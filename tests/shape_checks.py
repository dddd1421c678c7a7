"""Run-time checking of shapes, in every function that has some in its annotations; mypy checks the other types.

jaxtyping's import hook would remember shapes around every call of every function, which costs more than most functions.
"""

import inspect

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception

_remembering = jaxtyping.jaxtyped


def checked(function):
    """The function with its annotations enforced, or as it is where it returns `Self`, which beartype refuses."""
    try:
        return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)  # an int will do for a float
    except BeartypeDecorHintPep673Exception:
        return function


def _has_shapes(function):
    """Whether an annotation, kept as text, has a text inside, as `Float[Tensor, "member batch"]` has."""
    return any(not isinstance(hint, str) or '"' in hint or "'" in hint for hint in function.__annotations__.values())


def _jaxtyped(*given, typechecker=None):
    def decorated(target):
        if inspect.isfunction(target) and not _has_shapes(target):
            return target
        return _remembering(target, typechecker=typechecker)

    return decorated if typechecker else _remembering(*given)  # the import hook's use, or the package's own


jaxtyping.jaxtyped = _jaxtyped
