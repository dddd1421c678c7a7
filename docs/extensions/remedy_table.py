"""Update table and figures of docs/remedies.md from results/remedies: `python docs/extensions/remedy_table.py`."""

from __future__ import annotations

from pathlib import Path

import pandas
import xarray

from recombine import Comparison

BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
HEADINGS = ("remedy", "bump code: held out", "compose", "one-hot code: held out", "compose", "kept", "s", "knows")
CODES = ("bump", "onehot")
DOCS = Path(__file__).parents[1]


def comparison(code: str) -> Comparison:
    """Return the stored scores for one encoding."""
    return Comparison(xarray.load_dataset(DOCS.parent / "results/remedies" / code / "comparison.nc"), {})


def markdown() -> str:
    """Return both comparisons as one Markdown table, in the order of the first."""
    bump, onehot = (comparison(code).table().set_index("remedy") for code in CODES)
    rows = [HEADINGS, ("---",) * len(HEADINGS)]
    for name, row in bump.iterrows():
        other, kept = onehot.loc[name], min(row["kept"], onehot.loc[name, "kept"])
        rows.append((
            f"`{name}`", _score(row), row["compose"], _score(other), other["compose"], f"{kept:.3f}",
            f"{row['seconds']:.2f}", row["knows"],
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _score(row: pandas.Series) -> str:
    return f"{row['held out']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def updated(text: str) -> str:
    """Return the document with the table between its two marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


if __name__ == "__main__":
    document = DOCS / "remedies.md"
    document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
    for code in CODES:
        comparison(code).draw().savefig(DOCS / "images" / f"remedies_{code}.png", dpi=130)
