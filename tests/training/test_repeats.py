"""Repeated training in ensembles of other sizes: what is compared, and a CPU, where nothing may move."""

import numpy as np
import pandas
import pytest
from benchmarks.repeats import block, cases, moved, repeats, write_block

import recombine as rc


def planted():
    """Three seeds; with another size, one of them loses 0.3 and another gains 0.1."""
    accuracies = {0: [0.5, 0.9, 0.1], 1: [0.5, 0.9, 0.1], 2: [0.2, 0.9, 0.2]}
    sizes = [8, 8, 40]
    rows = [
        {
            "networks": "CNN",
            "training": k,
            "members": sizes[k],
            "together": min(8, sizes[k]),
            "seed": seed,
            "accuracy": a,
        }
        for k, own in accuracies.items()
        for seed, a in reversed(list(enumerate(own)))
    ]
    return pandas.DataFrame(rows)


def test_changes_are_between_networks_of_the_same_seed():
    found = moved(planted()).set_index("members")
    assert found.loc["8 and 8", ["mean", "largest", "shift"]].tolist() == [0, 0, 0]
    assert found.loc["8 and 40", ["mean", "largest", "shift"]].tolist() == pytest.approx([0.4 / 3, 0.3, -0.2 / 3])
    assert found.loc["8 and 40", "seeds"] == pytest.approx(np.std([0.5, 0.9, 0.1], ddof=1))


def test_the_document_gets_the_table_and_a_note_on_split_ensembles(tmp_path):
    path = tmp_path / "engine.md"
    path.write_text("before\n<!-- repeats: begin -->\nold\n<!-- repeats: end -->\nafter\n")
    write_block(path, block(planted()))
    text = path.read_text()
    assert text.startswith("before\n<!-- repeats: begin -->\n| networks |")
    assert "| CNN | 8 and 40 | 0.133 | 0.300 | -0.067 |" in text
    assert "fewer members together for: CNN." in text
    assert "old" not in text


def test_on_a_cpu_no_score_moves():
    small = rc.RunSpec(task=rc.BumpTask(size=8, training="draws:16"), decoder="cnn:width=4:depth=1")
    specs = {"CNN": small.replace(recipe=rc.Recipe(steps=5))}
    table = repeats(specs, "cpu", sizes=(1, 2, 3), repeated=2)
    assert len(table) == 3 * 2
    assert moved(table)[["mean", "largest", "shift"]].eq(0).all(axis=None)


def test_cases_are_arms_of_the_studies():
    assert {spec.decoder.kind for spec in cases().values()} == {"cnn", "low_rank", "coordinate", "transformer"}
