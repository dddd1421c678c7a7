"""Which remedy to try on which task, in words and tables for documents, from the arena's results alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.arena.protocol import CEILING, FILE, PLAIN, Protocol
from recombine.arena.result import LOWEST, MOST, Arena
from recombine.console import counted, number
from recombine.errors import listed
from recombine.files import read_given
from recombine.reproduction.figures import FigureSpec, Section

if TYPE_CHECKING:
    import pandas

    from recombine.reproduction.paper import Paper

REMEDIES_TEXT = (
    "The paper shows its own remedies on its own task. Here many published remedies are tried on several tasks, and "
    "the plain decoder beside them, with the same number of settings for each. Settings are chosen on combinations "
    "that are held out beside those of the test."
)
MOST_NAMED = 6
"""Remedies that a sentence names."""


def _score(value: float) -> str:
    return number(max(value, LOWEST))


def _rows(arena: Arena) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the rows of remedies, the best of each task first, and those of the baselines by task and name."""
    table = arena.table()
    is_baseline = table["remedy"].isin([PLAIN, CEILING])
    return table[~is_baseline], table[is_baseline].set_index(["task", "remedy"])


def in_brief(arena: Arena) -> str:
    """Return one sentence per task: what composes, what is best without knowing more, and what there is to gain."""
    remedies, baselines = _rows(arena)
    lines = []
    for task, own in remedies.groupby("task", sort=False):
        composing = own[own["compose"] > MOST].head(MOST_NAMED)
        names = [f"`{name}` ({_score(value)})" for name, value in zip(*_best(composing), strict=True)]
        if (more := int((own["compose"] > MOST).sum()) - len(names)) > 0:
            names.append(f"{more} more")
        said = f"most seeds compose with {listed(names)}" if names else "no remedy makes most seeds compose"
        (best, *_), (value, *_) = _best(own)
        if not names:
            said += f"; the best is `{best}` with {_score(value)}"
        free, values = _best(own[own["knows"] == ""])
        if len(free) and best != free[0]:
            said += f"; the best that knows no more than a plain decoder is `{free[0]}` with {_score(values[0])}"
        plain, ceiling = (_score(baselines.loc[(task, name), "held out"]) for name in (PLAIN, CEILING))
        lines.append(f"- **{task}**: {said}. Plain decoder {plain}, trained on the whole grid {ceiling}.")
    return "\n".join(lines)


def _best(rows: pandas.DataFrame) -> tuple[list[str], list[float]]:
    return rows["remedy"].tolist(), rows["held out"].tolist()


def matrix(arena: Arena) -> str:
    """Return the table of remedies by task, the best on average first; bold where most seeds compose."""
    remedies, _ = _rows(arena)
    table = arena.table()
    tasks = list(dict.fromkeys(table["task"]))
    means = remedies.assign(own=remedies["held out"].clip(lower=0)).groupby("remedy")["own"].mean()
    order = [*means.sort_values(ascending=False).index, *(n for n in (PLAIN, CEILING) if n in set(table["remedy"]))]
    cells = table.set_index(["remedy", "task"])
    lines = [f"| remedy | {' | '.join(tasks)} | time | knows | gate |", "|---|" + "---|" * (len(tasks) + 3)]
    for name in order:
        shown = []
        for task in tasks:
            row = cells.loc[(name, task)] if (name, task) in cells.index else None
            text = (
                "–"
                if row is None
                else f"{_score(row['held out'])} [{_score(row['95 % low'])}, {_score(row['95 % high'])}]"
            )
            shown.append(f"**{text}**" if row is not None and row["compose"] > MOST else text)
        own = cells.loc[name]
        plain = cells.loc[PLAIN]["seconds"]
        times = (own["seconds"] / plain.reindex(own.index)).mean()
        first = own.iloc[0]
        lines.append(f"| `{name}` | {' | '.join(shown)} | {times:.1f} × | {first['knows'] or '–'} | {first['gate']} |")
    return "\n".join(lines)


def controls(arena: Arena) -> str:
    """Return what is reached without composing, by task."""
    data = arena.data
    tasks = [str(name) for name in data["task"].values]
    lines = [f"| without composing | {' | '.join(tasks)} |", "|---|" + "---|" * len(tasks)]
    for name in map(str, data["control"].values):
        values = [_score(float(data["controls"].sel(task=task, control=name))) for task in tasks]
        lines.append(f"| {name} | {' | '.join(values)} |")
    return "\n".join(lines)


def limits(arena: Arena) -> str:
    """Return what the results cannot say: tasks that are not learnt, remedies that cannot fit them, and choices."""
    remedies, baselines = _rows(arena)
    least, lines = arena.data.attrs["composes"], []
    for task, own in remedies.groupby("task", sort=False):
        ceiling = baselines.loc[(task, CEILING), "held out"]
        if ceiling < least:
            lines.append(
                f"- **{task}**: even trained on the whole grid, the plain decoder reaches {_score(ceiling)}, so "
                "training is too short for this task to tell remedies that compose from others."
            )
        unlearnt = [f"`{name}`" for name in own[own["kept"] < least]["remedy"]]
        if unlearnt:
            lines.append(
                f"- **{task}**: the kept images were not learnt (R² below {least:g}) with {listed(unlearnt)}, whose "
                "rows say nothing about composing."
            )
    table = arena.table()
    if "by test score" in table:
        lost = (table["by test score"] - table["by inner score"]).dropna()
        lines.append(
            "- Configurations were chosen on a second hold-out. Choosing them on the test region itself, which nobody "
            f"can do, would have gained {lost.mean():.3f} in R² on average, and {lost.max():.2f} at most."
        )
    return "\n".join(lines)


def with_arena(paper: Paper, folder: Path) -> Paper:
    """Return the paper with a section about an arena's results, for the page."""
    arena = Arena.open(folder, Protocol.from_json(read_given(folder / FILE, "arena").decode()).tasks)
    data = arena.data
    caption = (
        f"R² on held-out combinations of {counted(len(data['remedy']) - 2, 'decoder')} with a remedy, tuned alike on a "
        f"second hold-out, on {counted(data.sizes['task'], 'task')} (trimmed means over "
        f"{counted(data.sizes['seed'], 'fresh seed')}; bold: most seeds compose); below the line, what is reached "
        "without composing."
    )
    figure = FigureSpec("arena", "Every remedy on every task", (), arena.draw, lambda: caption)
    section = Section("remedies", "Which remedy helps where?", REMEDIES_TEXT, (figure.name,))
    return replace(paper, figures={**paper.figures, figure.name: figure}, sections=(*paper.sections, section))


BLOCKS: Mapping[str, Callable[[Arena], Any]] = {
    "arena_in_brief": in_brief, "arena_matrix": matrix, "arena_controls": controls, "arena_limits": limits,
}  # fmt: skip
"""Functions that return the content of a document's marked blocks."""
