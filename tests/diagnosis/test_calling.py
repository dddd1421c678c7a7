"""Modules as people have them: another method, more arguments, several returned tensors, and code that exits."""

import json
import re
import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn

import recombine as rc
from recombine import console
from tests.command import captured

GRID = "x=0:3,y=0:3"


class Parts(NamedTuple):
    sample: torch.Tensor
    loss: torch.Tensor


class Model(nn.Module):
    """Returns its outputs in the requested form; the method `decode` runs only some of its layers."""

    def __init__(self, form="dict"):
        super().__init__()
        torch.manual_seed(0)
        self.form, self.first, self.second = form, nn.Linear(2, 5), nn.Linear(5, 9)

    def forward(self, inputs, scale=1.0):
        hidden = self.first(inputs)
        sample, loss = scale * self.second(hidden).tanh(), hidden.square().mean()
        forms = {
            "tensor": sample, "dict": {"loss": loss, "sample": sample, "hidden": hidden}, "tuple": (sample, hidden),
            "named": Parts(sample, loss), "object": SimpleNamespace(sample=sample, hidden=hidden),
            "nested": {"ids": sample.long(), "posterior": (hidden, torch.distributions.Normal(sample, 1.0))},
        }  # fmt: skip
        return forms[self.form]

    def decode(self, hidden, *, twice=False):
        return {"sample": self.second(hidden).tanh() * (2 if twice else 1)}


def features(form, **settings):
    """How many numbers the output has, and the notes."""
    result = rc.diagnose(Model(form), GRID, metrics=["features"], **settings)
    assert list(result["stage"].values) == ["input", "first", "second", "output"]
    return int(result["features"].sel(stage="output")), result.notes


@pytest.mark.parametrize(
    ("form", "output", "expected"),
    [
        ("dict", "sample", 9), ("dict", "hidden", 5), ("tuple", 1, 5), ("tuple", "0", 9), ("named", "sample", 9),
        ("named", 0, 9), ("object", "hidden", 5), ("nested", "posterior.0", 5), ("nested", "posterior.1.loc", 9),
        ("nested", "posterior.1.mean", 9), ("tensor", None, 9),
    ],
)  # fmt: skip
def test_the_output_is_chosen_by_key_index_or_attribute(form, output, expected):
    assert features(form, output=output) == (expected, [])


@pytest.mark.parametrize(
    ("form", "names", "measured", "expected"),
    [
        ("dict", "loss, sample, hidden (dict)", "sample", 9),  # the loss has no rows
        ("tuple", "0, 1 (tuple)", "0", 9),
        ("nested", "posterior.0, posterior.1.loc, posterior.1.scale (dict)", "posterior.0", 5),
    ],
)
def test_a_choice_that_the_user_did_not_make_is_a_note(form, names, measured, expected):
    size, (note,) = features(form)
    assert size == expected
    assert names in note
    assert f"{measured} was measured" in note
    assert note in rc.explore(Model(form), GRID).notes[0]


@pytest.mark.parametrize(
    ("form", "settings", "line"),
    [
        ("dict", {"output": "sampel"}, "output must be one of loss, sample, hidden, got 'sampel'"),
        ("nested", {"output": "ids"}, "output must be one of posterior.0, posterior.1.loc"),
        ("tuple", {"output": 2}, "output must be one of 0, 1, got 2"),
        ("tensor", {"output": "T"}, "output must be omitted"),
        ("dict", {"output": "loss"}, "one floating-point row per input row"),
        ("dict", {"call": "decod"}, r"call must be a method of Model \(forward, decode\), got 'decod'"),
        ("dict", {"kwargs": {"scal": 2}}, r"kwargs must be one of the other arguments of forward \(scale\)"),
        ("dict", {"call": "decode", "kwargs": {"hidden": 2}}, r"arguments of decode \(twice\)"),
    ],
)
def test_a_wrong_name_is_one_line_that_lists_what_there_is(form, settings, line):
    for use in (rc.diagnose, rc.explore):
        if use is rc.diagnose or "one floating" not in line:
            with pytest.raises(rc.InvalidValue, match=line) as caught:
                use(Model(form), GRID, **settings)
            assert "\n" not in str(caught.value)


def test_another_method_with_arguments_runs_only_its_own_layers():
    plain, doubled = (
        rc.diagnose(
            Model(), "x=0:3,y=0:3,a=0:1,b=0:1,c=0:1", call="decode", kwargs={"twice": twice}, metrics=["volume"]
        )["volume"]
        for twice in (False, True)
    )
    assert list(plain["stage"].values) == ["input", "second", "output"]
    assert torch.allclose(*(torch.tensor(own.sel(stage="output").values) for own in (32 * plain, doubled)), rtol=1e-3)
    assert (plain.sel(stage="second") == doubled.sel(stage="second")).all()


def test_a_function_puts_arguments_where_they_belong():
    def call(module, inputs, hidden):
        return module.decode(torch.cat([inputs, hidden.expand(len(inputs), -1)], dim=1))

    settings = {"call": call, "kwargs": {"hidden": torch.ones(3)}, "output": "sample"}
    result = rc.diagnose(Model(), GRID, **settings)
    assert list(result["stage"].values) == ["input", "second", "output"]
    assert result.attrs["metric"] == "exact"
    page = rc.explore(Model(), GRID, **settings)
    (model,) = json.loads(re.search('id="data">(.*?)</script>', page.html)[1])["models"]
    assert page.notes == ()
    assert [stage["name"] for stage in model["program"]["stages"]] == ["second", "output"]


def test_an_encoder_of_the_same_module_is_no_stage_and_has_a_derivative():
    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh())
            self.decoder = nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 36))

        def decode(self, latents):
            return self.decoder(latents)

    task, module = rc.BumpTask(size=6, holdout="center:2:3"), Autoencoder()
    settings = {"encode": lambda values: module.encoder(task.render(values)[:, None].float()), "call": "decode"}
    result = rc.diagnose(module, task.grid, holdout=task.holdout, targets=task.render, **settings)
    assert result.attrs["metric"] == "exact"
    assert list(result["stage"].values)[:2] == ["input", "decoder.0"]
    assert "not run: encoder" in result.notes[0]


def test_runs_have_a_call_of_their_own(store_path):
    (run,) = rc.train(rc.RunSpec(task=rc.BumpTask(size=6), decoder="mlp:width=4:depth=1", recipe=rc.Recipe(steps=1)))
    with pytest.raises(rc.InvalidValue, match="output must be omitted for a trained decoder"):
        rc.diagnose(run, output="sample")


def leave(*arguments):
    sys.exit(3)


class Leaves(nn.Linear):
    """Exits, but only in batches larger than those that are tried first."""

    def forward(self, inputs):
        return super().forward(inputs) if len(inputs) < 6 else leave()


@pytest.mark.parametrize(
    ("module", "settings", "field"),
    [
        (Leaves(2, 3), {}, "module"), (Model(), {"call": leave}, "module"),
        (nn.Linear(2, 3), {"encode": leave}, "encode"), (nn.Linear(2, 3), {"targets": leave}, "targets"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("use", [rc.diagnose, rc.explore])
def test_code_that_exits_is_an_error(use, module, settings, field):
    with pytest.raises(rc.InvalidValue, match="SystemExit: 3") as caught:
        use(module, GRID, **settings)
    assert caught.value.field == field


SOURCE = """
import sys
import torch
from torch import nn
from tests.diagnosis.test_calling import Model, Leaves

def model():
    return Model()

def leaves():
    return Leaves(2, 9)

def never():
    sys.exit()

class Late(nn.Linear):
    def extra_repr(self):
        sys.exit(4)

    def __deepcopy__(self, memo):
        sys.exit(4)

def late():
    return Late(2, 9)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return lambda words: captured(f"{words} --grid x=0:3,y=0:3,z=0:1,a=0:1,b=0:1", capsys)


@pytest.mark.parametrize("command", ["diagnose", "explore --out page.html"])
def test_the_command_line_takes_the_same(run, command):
    words = f"{command} own.py:model --call decode --kwargs twice=true"
    code, _, err = run(f"{words} --output sample")
    assert (code, err) == (0, "")
    for wrong, line in (("--kwargs twice=True", "JSON"), ("--kwargs other=1", "(twice)"), ("--output other", "sample")):
        code, _, err = run(f"{words} {wrong}")
        assert (code, err.count("\n")) == (2, 1)
        assert line in err


@pytest.mark.parametrize("words", ["diagnose own.py:never", "explore own.py:never --out a.html",
                                   "explore own.py:late --out a.html"])  # fmt: skip
def test_a_factory_that_exits_is_one_line(run, words):
    code, _, err = run(words)
    assert code in (1, 2)
    assert err.count("\n") == 1
    assert "SystemExit" in err


def test_factors_may_have_names_of_the_results_own():
    result = rc.diagnose(Model("tensor"), "stage=0:3,error=0:3", holdout="center:1:2", targets=torch.zeros(16, 9))
    assert result["error"].dims == ("factor_stage", "factor_error")
    assert result["volume"].dims == ("stage", "factor_stage", "factor_error")
    assert list(result["factor"].values) == ["factor_stage", "factor_error"]
    assert sum("factor stage is called factor_stage" in note for note in result.notes) == 1
    result.draw(["factor_stage", "factor_error"])


class Terminal:
    """Standard error that is a terminal."""

    encoding = "utf-8"

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True

    closed = False

    def fileno(self):
        raise OSError


def test_a_long_measurement_shows_its_progress_on_a_terminal_alone(monkeypatch, capsys):
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    rc.diagnose(Model("tensor"), GRID)
    assert capsys.readouterr().err == ""
    for progress in (True, False):
        monkeypatch.setattr(sys, "stderr", Terminal())
        rc.diagnose(Model("tensor"), GRID, progress=progress)
        assert ("/5" in sys.stderr.text) is progress
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(console, "PATIENCE", 60.0)
    rc.diagnose(Model("tensor"), GRID)
    assert sys.stderr.text == ""
