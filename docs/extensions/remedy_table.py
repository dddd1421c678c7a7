"""Update table and figures of docs/remedies.md from results/remedies: `python docs/extensions/remedy_table.py`."""

from __future__ import annotations

from pathlib import Path

import pandas
import xarray

from recombine import Comparison

BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
HEADINGS = ("remedy", "bump code: held out", "compose", "one-hot code: held out", "compose", "kept", "s", "knows")
CODES = ("bump", "onehot")
DPI = 130
DOCS = Path(__file__).parents[1]


def comparison(code: str) -> Comparison:
    """Return the stored scores for one encoding."""
    return Comparison(xarray.load_dataset(DOCS.parent / "results/remedies" / code / "comparison.nc"), {})


def markdown() -> str:
    """Return both comparisons as one Markdown table, in the order of the first."""
    bump, onehot = (pandas.DataFrame(comparison(code).cells()).set_index("remedy") for code in CODES)
    held_out, rows = bump.columns[0], [HEADINGS, ("---",) * len(HEADINGS)]
    for name, row in bump.iterrows():
        other = onehot.loc[name]
        rows.append((
            f"`{name}`", row[held_out], row["compose"], other[held_out], other["compose"],
            min(row["kept"], other["kept"]), row["s"], row["knows"],
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def updated(text: str) -> str:
    """Return the document with the table between its two marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


if __name__ == "__main__":
    document = DOCS / "remedies.md"
    document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
    for code in CODES:
        comparison(code).draw().savefig(DOCS / "images" / f"remedies_{code}.png", dpi=DPI)
