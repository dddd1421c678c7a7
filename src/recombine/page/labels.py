"""What tells decoders of a page apart, so that a reader can switch one thing at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recombine.errors import InvalidValue
from recombine.page.subject import Trained
from recombine.reproduction.explorer import NONE
from recombine.specs import RunSpec

FEW = 2
"""Decoders that need no labels: both are shown."""


def labels_of(decoders: Sequence[Any], given: Sequence[Mapping[str, str]] | None) -> tuple[list[str], list[list[str]]]:
    """Names of labels, and for each decoder its values; without names where decoders are told apart by their own.

    Parameters
    ----------
    decoders
        Modules, or runs, whose specs say what tells them apart.
    given
        Labels of each decoder, by name; those that are the same for all are left out.

    Returns
    -------
    names, values
        As a page has them.
    """
    if given is None:
        trained = [own for own in decoders if isinstance(own, Trained)]
        if len(decoders) <= FEW or len(trained) < len(decoders):
            return [], [[] for _ in decoders]
        given = [spec_labels(own.spec) for own in trained]
    labels = _valid(given, len(decoders))
    names = [name for name in labels[0] if len({own[name] for own in labels}) > 1]
    values = [[own[name] for name in names] for own in labels]
    if len({tuple(own) for own in values}) < len(values):
        alike = [values[: k + 1].count(own) for k, own in enumerate(values)]
        names, values = [*names, "of these"], [[*own, str(count)] for own, count in zip(values, alike, strict=True)]
    return names, values


def spec_labels(spec: RunSpec) -> dict[str, str]:
    """What a run is, by names that a reader can switch."""
    task, recipe = spec.task, spec.recipe
    decoder = spec.decoder.model_dump()
    penalties = {"entropy": recipe.entropy, "variance": recipe.variance}
    return {
        "code": _kind(task.encoding), "decoder": str(decoder["kind"]), "depth": str(decoder.get("depth", NONE)),
        "width": str(decoder.get("width", NONE)), "data": _training(task),
        "penalties": " and ".join(name for name, weight in penalties.items() if weight) or "none",
        "hold-out": str(getattr(task, "holdout", NONE)), "seed": str(spec.seed),
    }  # fmt: skip


def _kind(encoding: Any) -> str:
    return str(getattr(encoding, "kind", encoding))


def _training(task: Any) -> str:
    training = str(getattr(task, "training", NONE))
    return f"{training} and isolated factors" if task.isolated else training


def _valid(given: Any, count: int) -> list[dict[str, str]]:
    allowed = f"a dictionary of texts for each of {count} decoders, all with the same names"
    labels = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    if len(labels) != count or not all(isinstance(own, Mapping) for own in labels):
        raise InvalidValue("labels", given, allowed)
    texts = [text for own in labels for pair in own.items() for text in pair]
    if not all(isinstance(text, str) for text in texts) or any(list(own) != list(labels[0]) for own in labels):
        raise InvalidValue("labels", given, allowed)
    return [dict(own) for own in labels]
