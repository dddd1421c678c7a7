"""Remedies side by side."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import xarray

import recombine as rc
from recombine.comparison import Comparison
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
    assert table.loc["isolated", "knows"] == "extra images"
    assert table.loc["isolated", "training images"] == table.loc["none", "training images"] + 16
    assert table.loc["shrink", "source"] == "mine"
    runs = result.runs["none"]
    assert result.data["ood_accuracy"].sel(remedy="none").values.tolist() == [
        run.scores["ood_accuracy"] for run in runs
    ]
    assert (result.data["seconds"] > 0).all()


def scored(*rows):
    """A comparison of one remedy with these scores of its seeds: kept and held-out errors, then accuracies."""
    names = ("id_over_blank", "ood_over_blank", "id_accuracy", "ood_accuracy")
    columns = {name: [column] for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    columns |= {"id_mse": columns["id_over_blank"], "ood_mse": columns["ood_over_blank"]}
    columns |= {"id_score": columns["id_accuracy"], "ood_score": columns["ood_accuracy"]}
    data = xarray.Dataset(
        {name: (("remedy", "seed"), values) for name, values in columns.items()},
        {"remedy": ["none"], "seed": range(len(rows))}, {"score": "accuracy"},
    )  # fmt: skip
    about = {"seconds": 1.0, "images": 10, "parameters": 3, "privileges": "", "source": "", "spec": ""}
    return Comparison(data.assign({name: ("remedy", [value]) for name, value in about.items()}), {})


def test_seeds_are_counted_by_the_rule_of_diagnose():
    exact, faint, wrong = (0.01, 0.02, 1.0, 1.0), (0.01, 0.4, 1.0, 1.0), (0.01, 1.0, 1.0, 0.2)
    unlearnt, diverged = (0.6, 0.6, 0.9, 0.95), (np.nan,) * 4
    result = scored(exact, exact, faint, wrong, unlearnt, diverged)
    assert result.outcomes.values.tolist() == [
        ["composes", "composes", "partly composes", "does not compose", "not learnt", "not learnt"]
    ]
    assert result.data["composes"].values.tolist() == [[True, True, False, False, False, False]]
    assert "2/6 (1 partly, 2 not learnt)" in str(result)
    assert scored(unlearnt, unlearnt).cells()["compose"] == ["not learnt"]


def test_images_without_places_are_judged_by_their_errors():
    outcomes = scored((0.1, 0.15, *[np.nan] * 2), (0.1, 0.4, *[np.nan] * 2), (0.1, 0.6, *[np.nan] * 2)).outcomes
    assert outcomes.values.tolist() == [["composes", "partly composes", "does not compose"]]


def test_compare_and_diagnose_agree_on_own_images(tmp_path):
    bumps = rc.BumpTask(size=8)
    images = bumps.render(bumps.grid.points).numpy()
    x, y = bumps.grid.points.T.tolist()
    task = rc.ArrayTask(images, {"x": x, "y": y}, holdout="center:2:5", training="each")
    spec = rc.RunSpec(task=task, decoder="mlp:width=16:depth=1", recipe=rc.Recipe(steps=150, lr=0.01))
    result = rc.compare(spec, ["coordinate:width=32:depth=2", "mixup:weight=100"], seeds=1, store=tmp_path / "store")
    for name, runs in result.runs.items():
        diagnosed = [rc.diagnose(run, metrics=["ood_error"]).outcome for run in runs]
        assert result.outcomes.sel(remedy=name).values.tolist() == diagnosed, name
    assert {"composes", "does not compose", "not learnt"} <= {*result.outcomes.values.flatten()}


@pytest.mark.parametrize("seeds", [7, 8])
def test_intervals_need_eight_seeds(seeds):
    result = scored(*[(0.01, 0.02, 1.0, 0.9 + 0.01 * seed) for seed in range(seeds)])
    row = result.table().loc[0]
    if seeds < 8:
        assert np.isnan(row[["95 % low", "95 % high"]].astype(float)).all()
        assert "[" not in str(result)
    else:
        assert row["95 % low"] < row["held out"] < row["95 % high"]
        assert "[95 %]" in str(result)


def test_it_prints_as_a_short_table(result):
    lines = repr(result).splitlines()
    assert len(lines) == 1 + len(result.runs)
    assert lines[0].split()[0] == "remedy"
    assert max(map(len, lines)) < 120


def test_a_collapse_is_marked_and_reported(shrink, result, tmp_path, caplog):
    assert result.table().set_index("remedy").loc["shrink", "not learnt"] == 2
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
