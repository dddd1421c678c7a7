"""Tables fit the terminal that they are written to, and lose nothing there."""

import io

import pytest
from rich.text import Text

from recombine.cli.tables import LONG, Column, write_table
from recombine.console import Screen


def written(columns, width=None):
    """What is written to a terminal so wide, or to a file."""
    options = {"width": width, "force_terminal": True} if width else {"force_terminal": False}
    screen = Screen(file=io.StringIO(), markup=False, highlight=False, emoji=False, color_system=None, **options)
    write_table(screen, columns)
    return screen.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_cell_is_lost_in_a_terminal(width):
    columns = [Column("name", ["first", "second"], "left")]
    columns += [Column(f"N{number}", [f"1.{number}", f"2.{number}"]) for number in range(4)]
    columns.append(Column("why", ["because of this and of that, and then some more"] * 2, "left"))
    text = written(columns, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert all(cell in text for cell in ("first", "second", "1.3", "2.0", "because", "more"))


def test_a_file_has_one_line_per_row():
    columns = [Column("claim", ["[red]C1[/x]", "C2"], "left"), Column("verdict", [Text("open", style="red"), "x"])]
    columns.append(Column("why", ["a sentence " * 50, "red\x1b[31m"], "left"))
    lines = written(columns).splitlines()
    assert len(lines) == 4
    assert "[red]C1[/x]" in lines[2]
    assert "red\\x1b[31m" in lines[3]


def test_thousands_of_rows_are_plain_lines():
    lines = written([Column("key", ["a"] * (LONG + 1), "left"), Column("score", ["1"] * (LONG + 1))]).splitlines()
    assert lines[:2] == ["key\tscore", "a\t1"]
    assert len(lines) == LONG + 2
