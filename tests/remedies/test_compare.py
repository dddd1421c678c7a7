"""Remedies side by side."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import recombine as rc
from recombine.remedies import REMEDIES
from tests.command import captured
from tests.small import small_spec


@pytest.fixture(scope="module")
def shrink():
    @REMEDIES.register
    class Shrink(rc.Penalty):
        """A remedy of a user's own, so strong that outputs collapse."""

        source = "mine"
        kind: Literal["shrink"] = "shrink"
        weight: float = 1e4

        def loss(self, decode, codes, blocks, generator):
            return decode(codes).square().mean()

    yield Shrink
    REMEDIES.unregister("shrink")


@pytest.fixture(scope="module")
def result(shrink, tmp_path_factory):
    spec, store = small_spec("mlp", steps=40, lr=0.01), tmp_path_factory.mktemp("store")
    return rc.compare(spec, ["wider", "isolated", "shrink"], seeds=2, store=store)


def test_a_table_has_every_remedy_with_its_scores_and_privileges(result):
    table = result.table().set_index("remedy")
    assert set(table.index) == {"none", "wider", "isolated", "shrink"}
    assert (table["low"] <= table["held out"]).all()
    assert (table["held out"] <= table["high"]).all()
    assert table.loc["isolated", "knows"] == "extra images"
    assert table.loc["isolated", "images"] == table.loc["none", "images"] + 16
    assert table.loc["shrink", "source"] == "mine"
    runs = result.runs["none"]
    assert result.data["ood_accuracy"].sel(remedy="none").values.tolist() == [
        run.scores["ood_accuracy"] for run in runs
    ]
    assert (result.data["seconds"] > 0).all()


def test_a_collapse_is_counted_and_reported(shrink, result, tmp_path, caplog):
    table = result.table().set_index("remedy")
    assert table.loc["shrink", "collapsed"] == 2
    assert table.loc["none", "collapsed"] == 0
    spec = small_spec("mlp", steps=40, lr=0.01)
    rc.train(spec.with_remedy("shrink"), tmp_path / "store")
    assert "shrink: 1 of 1 runs collapsed" in caplog.records[-1].message


def test_it_draws_and_explores(result, tmp_path):
    figure = result.draw()
    assert len(figure.axes) == 2
    page = result.explore().save(tmp_path / "page.html")
    assert "wider" in page.read_text()


def test_completed_runs_are_loaded(shrink, tmp_path):
    spec, seen = small_spec("mlp"), []
    first = rc.compare(spec, ["mixup"], seeds=2, store=tmp_path / "store")
    again = rc.compare(spec, ["mixup"], seeds=2, store=tmp_path / "store", watch=seen.append)
    assert np.array_equal(first.data["ood_mse"], again.data["ood_mse"])
    assert [run.key for run in first.runs["mixup"]] == [run.key for run in again.runs["mixup"]]


def test_the_command_takes_a_remedy_from_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_remedies.py").write_text(
        "from typing import Literal\n\nimport recombine as rc\n\n\nclass Fewer(rc.Remedy):\n"
        '    """Train on half of the kept combinations."""\n\n    kind: Literal["fewer"] = "fewer"\n\n'
        '    def apply(self, spec):\n        return spec.replace(task=spec.task.replace(training="percent:50"))\n'
    )
    words = "compare --size 8 --decoder mlp --width 4 --depth 1 --steps 3 --seeds 2 --device cpu --out out"
    try:
        outcome = captured(f"{words} --remedy my_remedies:Fewer", capsys)
        assert outcome.code == 0
        assert "fewer" in outcome.out
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            "comparison.csv", "comparison.nc", "comparison.png", "page.html",
        ]  # fmt: skip
        assert captured(f"{words} --remedy my_remedies:Other", capsys).code == 2
    finally:
        REMEDIES.unregister("fewer")


def test_the_documented_table_is_that_of_the_results(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(root / "docs" / "extensions")
    from remedy_table import CODES, comparison, updated

    for data in (comparison(code).data for code in CODES):
        specs = {str(name): json.loads(str(data["spec"].sel(remedy=name).values)) for name in data["remedy"].values}
        plain = rc.RunSpec(**specs.pop("none"))
        for name, spec in specs.items():
            assert rc.RunSpec(**spec) == plain.with_remedy(name) or name == "interaction", name  # of an older version
    text = (root / "docs" / "remedies.md").read_text(encoding="utf-8")
    assert text == updated(text), "python docs/extensions/remedy_table.py"
