"""Names and attributes in Markdown: text, never markup."""

import re

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from recombine.reproduction.claims import Judgement, Test
from recombine.reproduction.figures import Section
from recombine.reproduction.intervals import Interval
from recombine.reproduction.report.verdicts import (
    brief_table,
    causes_table,
    claim_by_claim,
    costs_table,
    escaped,
    markdown_table,
    provenance_table,
    table,
)
from recombine.reproduction.results import Results
from tests.command import run
from tests.golden import RESULTS

HOSTILE = [
    "<script>alert(1)</script>", "<!-- verdicts: end -->", "`<b>`", "\\<b>", "\\`<b>\\`", "a | b <i>\n<u>", "&lt;b&gt;",
    "[x](javascript:alert(1))", "![x](http://tracker)", "<https://example.org>", "</td>", "<", "<?php ?>", "a\u2028<b>",
]  # fmt: skip
PARSER = MarkdownIt("commonmark", {"html": True}).enable("table")
TAGS = {"table", "thead", "tbody", "tr", "th", "td", "p", "strong", "em", "h3"}


def markup(text):
    """What a page made of the Markdown has, other than tables, headings and emphasis."""
    return set(re.findall(r"<[/!?]?(\w*)", PARSER.render(text))) - TAGS


def judged(name):
    test = Test(name, name, name, "yes", Interval(1.0, 0.0, 2.0, 3), 3, 3)
    return [Judgement("C1", name, name, "yes", None, [test], [test], [test])]


def test_no_name_becomes_markup():
    text = " ".join(HOSTILE)
    tables = [make(judged(text)) for make in (markdown_table, claim_by_claim, causes_table)]
    costs = {text: {"networks": 1, "seeds": text, "training": 1.0, "measuring": 1.0}}
    brief = brief_table(judged(text), [Section("name", text, text, claims=("C1",))])
    blocks = [*tables, brief, provenance_table({"device": text, text: 1}), costs_table(costs)]
    for block in blocks:
        assert not markup(block), block
    rows = [line for line in blocks[0].splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in rows] == [6, 6, 6]


def test_verdicts_in_brief_are_by_section_and_leave_none_out():
    verdicts = {"C1": "yes", "C2": "reversed", "C3": "yes", "C4": "open"}
    judgements = [Judgement(claim, "text", "where", verdict, ours=claim > "C2") for claim, verdict in verdicts.items()]
    sections = [Section("a", "First", "", claims=("C3", "C2", "C1", "C9")), Section("b", "Empty", "", claims=("C9",))]
    assert brief_table(judgements, sections).splitlines() == [
        "The paper: 2 claims; described: 1 yes, 1 reversed. This project: 2 claims; described: 1 yes, 1 open.",
        "",
        "| | The paper | This project |",
        "|---|---|---|",
        "| First | reversed: C2; described: C1 | described: C3 |",
        "| Others |  | open: C4 |",
    ]


@given(st.text(alphabet=st.sampled_from("<>!&;lt#|`\\[]():/ab \n*_-"), max_size=30))
def test_no_text_at_all_becomes_markup(text):
    assert not markup(table(("a", "b", "c"), [[text, "x", text]]))
    assert not markup(f"Caption: {escaped(text)}")


@given(st.text(alphabet=st.sampled_from("<>!&;lt#`\\[](): ab."), max_size=30))
def test_what_is_shown_is_the_text(text):
    rendered = PARSER.renderInline("x" + escaped(text) + "x")
    for entity, letter in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        rendered = rendered.replace(entity, letter)
    assert rendered == "x" + " ".join(text.split()) + "x"


def test_a_hostile_dataset_in_a_readme(tmp_path, monkeypatch):
    results = Results(tmp_path / "results")
    data = Results(RESULTS).dataset("encodings").assign_attrs(device="<img src=x onerror=alert(1)>")
    results.save("encodings", data, "digest")
    monkeypatch.setattr("recombine.cli.reproduce.written", lambda findings, out, begin: findings.results.path)
    readme = tmp_path / "README.md"
    readme.write_text("<!-- provenance: begin -->\n<!-- provenance: end -->\n")
    assert run("report", str(results.path), "--write", str(readme)) == 0
    assert "img src" in readme.read_text()
    assert "<img" not in readme.read_text()
