"""Stored specs in the words of the command line: parts that can be pasted back, and in what runs differ."""

import json
import re
import shlex

import pytest

from recombine.cli.sweep import PARTS
from recombine.cli.tables import field_text, train_command
from recombine.decoders import MLP
from recombine.specs import RunSpec
from recombine.sweep import train
from tests.command import run
from tests.small import small_spec

SPECS = {
    "plain": small_spec("mlp"),
    "parts": small_spec("cnn", task={"encoding": "positional:3:50", "holdout": "center:2,3:5", "sigma": 1.5}, seed=7),
    "tuple": small_spec("encoder"),
    "mask": small_spec("mlp", task={"holdout": "mask:0,1;3,4", "isolated": True, "mixing": 0.25}),
    "mixed": small_spec("mlp", task={"encoding": "mixed:x=(bump:variance=3):y=onehot", "holdout": "corner:2"}),
    "factors": small_spec(
        "mlp",
        task={"brightness": 3, "holdout": "diagonal:2:factors=x,y", "isolated": True, "isolated_factors": ("x",)},
    ),
    "penalties": small_spec("low_rank", epochs=3),
    "version": small_spec("mlp").with_remedy("interaction"),
    "rotation": RunSpec(task={"kind": "rotation", "angles": 36}, decoder="mlp:width=4:depth=1"),
}


def fields_of(spec):
    return json.loads(spec.to_json())


@pytest.mark.parametrize("name", SPECS)
def test_what_is_printed_is_what_flags_take(name):
    spec, fields = SPECS[name], fields_of(SPECS[name])
    for part, registry in PARTS.items():
        value = spec.decoder if part == "decoder" else getattr(spec.task, part)
        assert registry.parse(field_text({**fields["task"], **fields}[part])) == value


@pytest.mark.parametrize("name", SPECS)
def test_the_command_of_a_run_trains_that_run(name, monkeypatch):
    asked = []
    monkeypatch.setattr("recombine.cli.train.train_specs", lambda specs, *_, **__: asked.extend(specs) or [])
    monkeypatch.setattr("recombine.cli.train.write_summary", lambda *_: None)
    assert run("train", *shlex.split(train_command(fields_of(SPECS[name])))[2:]) == 0
    assert asked == [SPECS[name]]


def test_the_order_of_a_decoders_fields_is_no_matter():
    assert field_text({"depth": 1, "kind": "mlp", "width": 4}) == "mlp:depth=1:width=4"
    assert PARTS["decoder"].parse("mlp:depth=1:width=4") == MLP(width=4, depth=1) == PARTS["decoder"].parse("mlp:4:1")


def test_a_long_mask_says_how_long_it_is():
    spec = small_spec("mlp", task={"holdout": {"kind": "mask", "points": [(x, y) for x in range(4) for y in range(4)]}})
    holdout = fields_of(spec)["task"]["holdout"]
    assert field_text(holdout) == "mask:points=16 points"
    assert PARTS["holdout"].parse(field_text(holdout, whole=True)) == spec.task.holdout


def test_list_shows_what_differs(store_path, capsys):
    base = small_spec(MLP(width=4, depth=1))
    specs = [base, base.replace(seed=3), base.replace(decoder=MLP(width=8, depth=1))]
    specs.append(small_spec("cnn", task={"sigma": 2.0, "holdout": "mask:0,1;3,4"}))
    train(specs, store_path, device="cpu")

    def output(*words):
        assert run(*words) == 0
        return capsys.readouterr().out

    text = output("runs", "list", "--where", "decoder == 'mlp'")
    assert "3 of 4 finished runs" in text
    assert re.search(r"^key +width +seed +ID MSE", text, re.MULTILINE)
    common = re.search("all of them: (.*)", text)[1].split(", ")
    assert {"size=8", "weight_decay=0.05", "holdout=center", "holdout.low=2", "status=done"} <= set(common)
    heading = output("runs", "list").splitlines()[0].split()
    assert {"decoder", "sigma", "holdout"} < set(heading)
    assert "holdout.points" not in heading  # which only repeats that the hold-out is a mask
    command = re.search("trained by: (.*)", output("runs", "show", base.digest))[1]
    assert command == train_command(fields_of(base))
