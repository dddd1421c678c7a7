"""Summary sentences say no more than the verdicts: each one names its verdicts in a comment, and these are today's.

A comment is `<!-- says: C1 described; C8 reversed -->`. When a verdict changes, the test fails, so that somebody reads
the sentence again.
"""

import re
from pathlib import Path

import pytest

from recombine.papers.forced_rendering import PAPER as DEFAULT

ROOT = Path(__file__).parents[3]
SAYS = re.compile(r"<!-- says: (.+?) -->", re.DOTALL)
SUMMARIES = (
    ("README.md", r"In short:\n", r"The evidence is in"),
    ("README.md", r"CNNs and MLPs fail", r"\*Described\* means"),
    ("docs/verdicts.md", r"In brief:\n", r"An audit found"),
    ("docs/reproduction.md", r"## What differs from the paper\n", r"!\[Accuracy, error and products"),
)
"""Documents, and where their summaries begin and end."""


def sentences(name, begin, end):
    """The bullets of a summary, or its paragraphs."""
    text = re.search(f"{begin}.*?(?={end})", (ROOT / name).read_text(), re.DOTALL)[0]
    parts = [part for part in re.split(r"\n(?=- )", text) if part.startswith("- ")]
    return parts or text.strip().split("\n\n")


@pytest.mark.parametrize("summary", SUMMARIES, ids=lambda own: f"{own[0]}, {own[1][:8]}")
def test_every_summary_sentence_has_todays_verdicts(summary):
    parts = sentences(*summary)
    assert parts
    for part in parts:
        said = SAYS.search(part)
        assert said, part
        verdicts = dict(own.split(" ", 1) for own in " ".join(said[1].split()).split("; "))
        assert verdicts == {claim: DEFAULT.reference[claim] for claim in verdicts}
        first = re.match(r"- \*\*(.+?)\.\*\*", part)
        named = re.findall(r"\bC\d+\b", first[1] if first else SAYS.sub("", part))
        ranges = [range(int(a), int(b)) for a, b in re.findall(r"C(\d+)–C(\d+)", SAYS.sub("", part))]
        named += [f"C{number}" for own in ranges for number in own] if not first else []
        assert set(named) <= set(verdicts), part
