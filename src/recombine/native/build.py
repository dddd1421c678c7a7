"""Compiling the kernels, once a machine."""


def available() -> bool:
    """Whether there are compiled kernels."""
    return False


def why_not() -> str:
    """Why there are none."""
    return "not written yet"
