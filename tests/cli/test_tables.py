"""Tables at any width: every name and every number is there, and no text is markup."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from recombine.cli.tables import Column, Holds, write_fields, write_table
from recombine.console import Screen, width_of

CELLS = st.text("ab [/]=:.5\x1b", min_size=1, max_size=30).map(lambda text: "_".join(text.split()) or "_")


def written(width, write, *arguments):
    screen = Screen(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    write(screen, *arguments)
    return screen.file.getvalue()


@settings(max_examples=200, deadline=None)
@given(st.integers(20, 160), st.integers(1, 5), st.integers(1, 9), st.data())
def test_nothing_is_lost_and_nothing_is_too_wide(width, rows, numbers, data):
    names = [data.draw(CELLS) for _ in range(rows)]
    columns = [Column("name", names, Holds.NAMES), Column("seeds", ["1"] * rows, Holds.NAMES)]
    for number in range(numbers):
        columns.append(Column(f"N{number}", [f"{row}.{number}" for row in range(rows)]))
    columns.append(Column("why", ["because of this and of that, and then some more"] * rows, Holds.PROSE))
    text = written(width, write_table, columns)
    assert "\x1b" not in text
    flat = "".join(text.split())
    for name in names:
        assert name.replace("\x1b", "\\x1b") in flat
    for number in range(numbers):
        assert f"N{number}" in text
        for row in range(rows):
            assert f"{row}.{number}" in text
    for word in ["name", "seeds", "why", "because", "some", "more"]:
        assert word in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width


def test_a_table_that_fits_is_one():
    columns = [Column("setting", ["a", "b"], Holds.NAMES), Column("seeds", ["4", "4"]), Column("MSE", ["0.1", "12"])]
    assert written(40, write_table, columns) == (
        "setting  seeds  MSE\n───────────────────\na            4  0.1\nb            4   12\n"
    )


def test_numbers_that_do_not_fit_go_below_with_their_names():
    columns = [Column("setting", ["first", "other"], Holds.NAMES)]
    columns += [Column(f"score {number}", ["1", "2"]) for number in range(4)]
    text = written(30, write_table, columns)
    assert text.count("setting") == 2
    assert text.count("first") == 2
    assert [text.count(f"score {number}") for number in range(4)] == [1, 1, 1, 1]


def test_rows_become_blocks_where_nothing_fits():
    columns = [Column("setting", ["a very long name of a setting"], Holds.NAMES), Column("score", ["0.5"])]
    assert written(30, write_table, columns) == "a very long name of a setting\n  score  0.5\n"


def test_colours_are_kept_and_text_is_text():
    columns = [Column("claim", ["[red]C1[/x]"], Holds.NAMES), Column("verdict", [Text("open", style="red")])]
    screen = Screen(file=io.StringIO(), width=80, force_terminal=True, color_system="standard", markup=False)
    write_table(screen, columns)
    assert "[red]C1[/x]" in screen.file.getvalue()
    assert "\x1b[31mopen" in screen.file.getvalue()


def test_long_values_are_folded_not_cut():
    path = "/" + "x" * 100
    assert path in "".join(written(40, write_fields, {"files": path, "n": "1"}).split()).replace("n1", "")[5:]


@pytest.mark.parametrize(
    ("columns", "width"),
    [
        ("0", 160),
        ("-5", 160),
        ("", 160),
        ("abc", 160),
        ("²", 160),
        ("80", 80),
        ("1", 20),
        ("9" * 30, 160),
        ("99999", 500),
    ],
)
def test_columns_that_make_no_sense_are_not_used(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert width_of(io.StringIO()) == width
