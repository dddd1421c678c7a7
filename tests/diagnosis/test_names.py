"""Names of submodules are anything: they break no table, no note, no figure and no message."""

import pytest
import torch
from torch import nn

import recombine

GRID = "x=0:3,y=0:3"
NAMES = {
    "two  spaces": "two  spaces",
    "line\nend": "line\\x0aend",
    "red\x1b[31m": "red\\x1b[31m",
    "$\\frac{$": "$\\frac{$",
}


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleDict({name: nn.Linear(2, 2) for name in NAMES})
        self.add_module("idle\nname", nn.Linear(2, 2))

    def forward(self, values):
        for part in self.parts.values():
            values = torch.tanh(part(values))
        return values


@pytest.fixture(scope="module")
def result():
    return recombine.diagnose(Named(), GRID)


def test_the_table_has_a_row_per_stage(result):
    table = result.summary_table()
    assert table["stage"] == ["input", *(f"parts.{name}" for name in NAMES.values()), "output", "AUROC"]
    assert {len(cells) for cells in table.values()} == {len(NAMES) + 3}
    assert len(result.summary().splitlines()) == 1 + len(NAMES) + 3 + len(result.summary_lines())
    assert result.notes == ["not run: idle\\x0aname"]


@pytest.mark.filterwarnings("error:Glyph")
def test_the_command_prints_and_draws_it(tmp_path, monkeypatch, capsys):
    from recombine.cli import main

    source = "from tests.diagnosis.test_names import Named\n"
    (tmp_path / "named_parts.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as caught:
        main(["diagnose", "named_parts:Named", "--grid", "日本=0:3,y=0:3", "--out", "drawn"])
    out, err = capsys.readouterr()
    assert (tmp_path / "drawn" / "volume.svg").exists()
    assert (caught.value.code, err) == (0, "")
    assert "parts.two  spaces  " in out
    assert "parts.line\\x0aend  " in out
