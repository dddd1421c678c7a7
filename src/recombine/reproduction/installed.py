"""Installed papers, found through their entry points in the `recombine.papers` group (docs/extending.md)."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from recombine.errors import InvalidValue, RecombineError, listed, reason_of
from recombine.reproduction.paper import Paper
from recombine.version import PAPERS

OURS = "recombine"  # distribution whose papers are listed first
DEFAULT = "forced_rendering"  # and first among them


def paper_names() -> list[str]:
    """Return the names of all installed papers, starting with those of this package and the default paper."""
    entries = entry_points(group=PAPERS)
    ours = {name: getattr(entries[name].dist, "name", OURS) == OURS for name in entries.names}
    return sorted(entries.names, key=lambda name: (not ours[name], name != DEFAULT, name))


@cache
def paper(name: str | None = None) -> Paper:
    """Return an installed paper.

    Parameters
    ----------
    name
        The name of the paper's entry point. Default: the paper that this package was written for.

    Returns
    -------
    Paper
        The paper's presets, studies, claims and figures.

    Examples
    --------
    >>> import recombine as rc
    >>> list(rc.paper().presets)[-1]
    'paper'
    """
    names = paper_names()
    if not names:
        raise RecombineError(f"no paper is installed: 'pip install recombine' adds the entry point {PAPERS!r}")
    if name is not None and name not in names:
        raise InvalidValue("paper", name, f"one of {listed(names)}, the installed {PAPERS!r} entry points")
    entry = entry_points(group=PAPERS)[name or names[0]]
    try:
        loaded = entry.load()
    except Exception as error:  # a third-party package may raise anything
        raise InvalidValue("paper", entry.name, f"a package that can be imported ({reason_of(error)})") from error
    if not isinstance(loaded, Paper):
        raise InvalidValue("paper", entry.name, f"an entry point that refers to a Paper ({entry.value} does not)")
    return loaded


PAPER = paper()
PRESETS, STUDIES, Preset = PAPER.presets, PAPER.studies, PAPER.preset
