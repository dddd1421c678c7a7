"""A study of your own in a file: arms, seeds, claims and figures in TOML, YAML or JSON, or a Python file.

A paper is named by `--paper`, a file by `--study`; both are one flag, so that every command that judges or draws a
paper does the same for a file (docs/own_studies.md).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from recombine.cli.imports import import_parts
from recombine.cli.sweep import READERS, flags_of, located, parse_seeds, read_table, specs_from
from recombine.errors import InvalidValue, listed
from recombine.records import Frozen
from recombine.reproduction import installed
from recombine.reproduction.criteria import Learnt
from recombine.reproduction.own_study import OwnClaim, own_paper
from recombine.reproduction.paper import Paper
from recombine.reproduction.study import Study
from recombine.specs import RunSpec

FLAG = "--study"
PYTHON = ".py"
LENGTH = ("epochs", "steps")


class _File(Frozen):
    """What a file says besides flags of `recombine train`, which hold for all arms."""

    title: str = ""
    question: str = ""
    arms: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    """Flags of each arm."""
    claim: tuple[dict[str, Any], ...] = ()
    figures: tuple[str, ...] = ()
    learnt: dict[str, Any] = Field(default_factory=dict)


def paper_named(name: str | None) -> Paper:
    """Return an installed paper by its name, or the study in a file."""
    path = Path(name or "")
    if path.suffix == PYTHON:
        return _from_python(path)
    if path.suffix in READERS:
        try:
            return _from_table(path, read_table(path))
        except InvalidValue as error:
            raise (error if error.field == "file" else located(path.name, error)) from None
    if path.suffix:
        raise InvalidValue("study", str(path), f"a file ending in {listed([*READERS, PYTHON])}")
    return installed.paper(name)


def _name(path: Path) -> str:
    """Return a name for the study's Dataset."""
    return re.sub(r"\W+", "_", path.stem).lower()


def _from_python(path: Path) -> Paper:
    """Return the `PAPER` of a module, or a paper of its `STUDY`, `CLAIMS` and `FIGURES`."""
    module = import_parts(str(path), FLAG)
    paper, study = getattr(module, "PAPER", None), getattr(module, "STUDY", None)
    if isinstance(paper, Paper):
        return paper
    if not isinstance(study, Study):
        raise InvalidValue("study", str(path), "a file with PAPER (a Paper), or with STUDY, CLAIMS and FIGURES")
    claims, figures = getattr(module, "CLAIMS", ()), getattr(module, "FIGURES", ())
    about = {"title": study.question, "source": path.name, "question": study.question}
    return Paper.of(_name(path), [study], claims, figures, **about)


def _from_table(path: Path, table: dict[str, Any]) -> Paper:
    """Return the paper that a file of names and values describes."""
    file = _File(**{name: table.pop(name) for name in _File.model_fields if name in table})
    shared = flags_of(table, _File.model_fields)
    seeds = parse_seeds(shared.pop("seeds", None))
    if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        raise InvalidValue("seeds", table["seeds"], "a number of seeds (8) or a range (100..115)")
    specs, claims = {name: _spec(name, shared, arm) for name, arm in file.arms.items()}, []
    if not (file.claim or file.figures):
        raise InvalidValue("claim", None, "given, or figures")
    for number, fields in enumerate(file.claim, 1):
        try:
            claims.append(OwnClaim(**fields))
            claims[-1].statement("", specs, Learnt())
        except InvalidValue as error:
            raise located(f"claim {number}", error) from None
    return own_paper(
        _name(path), specs, claims, seeds=len(seeds), first_seed=seeds[0], learnt=Learnt(**file.learnt),
        figures=file.figures, question=file.question, title=file.title, source=path.name,
    )  # fmt: skip


def _spec(name: str, shared: dict[str, list[str]], table: dict[str, Any]) -> RunSpec:
    """Return the spec of an arm: the flags of the whole file, and its own over them."""
    try:
        own = flags_of(table)
        if own.keys() & {*LENGTH}:  # either replaces both
            shared = {flag: values for flag, values in shared.items() if flag not in LENGTH}
        if "seeds" in own:
            raise InvalidValue("seeds", table["seeds"], "the same for all arms, outside [arms]")
        specs = specs_from({**shared, **own, "seeds": ["0,"]})
        if len(specs) != 1:
            raise InvalidValue("arm", f"{len(specs)} specs", "one spec: one value per flag")
    except InvalidValue as error:
        raise located(name, error) from None
    return specs[0]
