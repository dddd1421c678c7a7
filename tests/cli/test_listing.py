"""`runs list`: parts that can be pasted back, what differs, and conditions."""

import json
import re
import shlex

import pytest

from recombine.cli.flags import PARTS
from recombine.cli.listing import difference, field_text, flag_fields, matching, train_command
from recombine.decoders import MLP
from recombine.errors import InvalidValue
from recombine.specs import RunSpec
from recombine.store import Store
from recombine.sweep import train
from tests.command import captured, run
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
    "rotation": RunSpec(task={"kind": "rotation", "angles": 36}, decoder="mlp:width=4:depth=1"),
}


def row(spec, status="done"):
    return spec.digest, {"status": status, "scores": {}, "spec": json.loads(spec.to_json())}


def command_of(spec):
    return shlex.split(train_command(row(spec)[1]))[2:]


@pytest.mark.parametrize("name", SPECS)
def test_what_a_list_prints_is_what_flags_take(name):
    spec = SPECS[name]
    fields = flag_fields(row(spec)[1])
    for part, registry in PARTS.items():
        value = spec.decoder if part == "decoder" else getattr(spec.task, part)
        assert registry.parse(field_text(fields[part])) == value


@pytest.mark.parametrize("name", SPECS)
def test_the_command_of_a_run_trains_that_run(name, monkeypatch):
    asked = []
    monkeypatch.setattr("recombine.cli.train.train_specs", lambda specs, *_, **__: asked.extend(specs) or [])
    monkeypatch.setattr("recombine.cli.train.write_summary", lambda *_: None)
    assert run("train", *command_of(SPECS[name])) == 0
    assert asked == [SPECS[name]]


def test_a_field_that_only_some_runs_have_written_down_is_a_column():
    plain = small_spec("mlp", task={"isolated": True})
    columns, _ = difference([row(plain), row(plain.replace(task=plain.task.replace(isolated_factors=("x",))))])
    assert columns == {"isolated_factors": ["–", "x,"]}


def test_the_order_of_a_decoders_fields_is_no_matter():
    assert field_text({"depth": 1, "kind": "mlp", "width": 4}) == "mlp:depth=1:width=4"
    assert PARTS["decoder"].parse("mlp:depth=1:width=4") == MLP(width=4, depth=1) == PARTS["decoder"].parse("mlp:4:1")


def test_a_long_mask_says_how_long_it_is():
    spec = small_spec("mlp", task={"holdout": {"kind": "mask", "points": [(x, y) for x in range(4) for y in range(4)]}})
    assert field_text(flag_fields(row(spec)[1])["holdout"]) == "mask:points=16 points"
    assert PARTS["holdout"].parse(field_text(flag_fields(row(spec)[1])["holdout"], whole=True)) == spec.task.holdout


def test_columns_are_what_differs():
    base = small_spec(MLP(width=4, depth=1))
    rows = [row(base), row(base.replace(seed=3)), row(base.replace(decoder=MLP(width=8, depth=1)), "diverged")]
    columns, common = difference(rows)
    assert columns == {
        "status": ["done", "done", "diverged"], "decoder.width": ["4", "4", "8"], "seed": ["0", "3", "0"],
    }  # fmt: skip
    assert common["size"] == "8"
    assert common["weight_decay"] == "0.05"
    assert common["holdout"] == "center:high=6:low=2"
    assert "seed" not in common
    columns, _ = difference([row(base), row(small_spec("cnn", task={"sigma": 2.0}))])
    assert columns == {"sigma": ["1.0", "2.0"], "decoder": ["mlp:depth=1:width=4", "cnn:depth=2:width=8"]}
    assert difference([row(base)])[0] == {}


ROWS = [row(spec) for spec in (small_spec("mlp"), small_spec("mlp", seed=1), small_spec("cnn", task={"sigma": 2.0}),
                               small_spec("mlp", task={"holdout": "center:2,3:5"}))]  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "chosen"),
    [
        ([], [0, 1, 2, 3]),
        (["decoder=mlp"], [0, 1, 3]),
        (["decoder.kind=mlp", "seed=0"], [0, 3]),
        (["seed=0", "seed=1", "decoder=mlp"], [0, 1, 3]),
        (["task.sigma=2"], [2]),
        (["sigma=1.0"], [0, 1, 3]),
        (["width=8", "recipe.weight-decay=5e-2"], [0, 1, 2, 3]),
        (["decoder=mlp:depth=2", "holdout=center:low=2"], [0, 1]),
        (["holdout.low=2,3"], [3]),
        (["isolated=false", "mixing=none", "status=done", "--seed=1"], [1]),
    ],
)
def test_conditions(conditions, chosen):
    assert matching(ROWS, conditions) == [ROWS[number] for number in chosen]


def test_conditions_that_no_run_can_meet():
    for condition in ("seed", "colour=red", "seed=9", "decoder=gan", "decoder=mlp:4", "decoder.heads=2", "seed=one"):
        with pytest.raises(InvalidValue) as caught:
            matching(ROWS, [condition])
        assert caught.value.field == "where"
    assert matching([], ["seed=9"]) == []


def test_list_and_export_take_conditions(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RECOMBINE_STORE", str(tmp_path / "runs"))
    train([small_spec(MLP(width=4, depth=1), seed=seed) for seed in range(3)], tmp_path / "runs")

    def output(line):
        assert run(*line.split()) == 0
        return capsys.readouterr().out

    text = output("runs list --where seed=0 --where seed=2 --where decoder=mlp")
    assert "2 of 3 finished runs" in text
    assert re.search(r"^key +seed +ID MSE", text, re.MULTILINE)
    assert "all of them: " in text
    assert "decoder=mlp:depth=1:width=4" in text
    assert "1 run exported" in output(f"runs export {tmp_path / 'one'} --where seed=1")
    (copied,) = Store(tmp_path / "one").runs()
    assert copied.spec.seed == 1
    command = re.search("trained by: (.*)", output(f"runs show {copied.key}"))[1]
    assert command == train_command(row(copied.spec)[1])


def test_fields_to_filter_by_are_named_as_fields(store_path, capsys):
    train([small_spec("mlp")], store_path, device="cpu")
    code, _, err = captured("runs list --where nothing=3", capsys)
    assert code == 2
    assert " allow_unseen," in err
