"""Labels of decoders, by which a page switches them."""

import pytest
from torch import nn

import recombine as rc
from recombine.page.labels import labels_of
from recombine.reproduction.explorer import KeptDecoder
from tests.page.test_explore import SMALL, data_of

TASK = rc.BumpTask(size=8, encoding="bump", holdout="center:3:4")
BASE = rc.RunSpec(task=TASK, decoder=rc.MLP(width=8, depth=1))


def kept(spec):
    return KeptDecoder("one", spec.digest, spec, {}, {}, {})


def test_runs_are_labelled_by_what_their_specs_differ_in():
    deep = BASE.replace(decoder=rc.MLP(width=8, depth=2))
    striped = BASE.replace(task=TASK.replace(isolated=True, training="pick:5"))
    names, values = labels_of([kept(spec) for spec in (BASE, deep, striped)], None)
    assert names == ["depth", "data"]
    assert [own[0] for own in values] == ["1", "2", "1"]
    assert values[2][1] == "pick:samples=5 and isolated factors"


def test_equal_labels_are_numbered():
    assert labels_of([kept(BASE)] * 3, None) == (["of these"], [["1"], ["2"], ["3"]])


def test_two_decoders_and_modules_need_no_labels():
    assert labels_of([kept(BASE)] * 2, None) == ([], [[], []])
    assert labels_of([nn.Linear(2, 4)] * 3, None) == ([], [[], [], []])


def test_given_labels_are_in_the_page():
    modules = [nn.Linear(2, 16), nn.Linear(2, 16)]
    page = rc.explore(modules, SMALL, labels=[{"a": "one", "b": "same"}, {"a": "two", "b": "same"}])
    data = data_of(page)
    assert data["labels"] == ["a"]
    assert [model["labels"] for model in data["models"]] == [["one"], ["two"]]


@pytest.mark.parametrize("labels", [[{"a": "one"}], "text", [{"a": "1"}, {"b": "1"}], [{"a": 1}, {"a": "2"}], [1, 2]])
def test_mistakes_are_one_line(labels):
    with pytest.raises(rc.InvalidValue, match="a dictionary of texts for each of 2 decoders") as error:
        labels_of([nn.Linear(2, 16), nn.Linear(2, 16)], labels)
    assert "\n" not in str(error.value)
