"""Decoders that a results folder keeps for the report's explorer."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import recombine as rc
from recombine.errors import InvalidValue
from recombine.reproduction import explorer
from recombine.reproduction.explorer import collect, kept_decoders
from recombine.reproduction.live_decoders import DecoderChoice, LabelledSpec
from recombine.reproduction.results import EXPLORER, Results

TASK = rc.BumpTask(size=8, encoding="bump")
LARGE = rc.RunSpec(task=TASK, decoder=rc.MLP(width=72, depth=1))
"""With tensors that are worth rounding."""
SMALL = rc.RunSpec(task=TASK, decoder=rc.MLP(width=8, depth=1))
OTHER_GRID = rc.RunSpec(task=TASK.replace(size=7), decoder=rc.MLP(width=8, depth=1))


class FakeRun(SimpleNamespace):
    """A run that was never trained, as a store would give it."""

    def __init__(self, spec, status="done"):
        super().__init__(spec=spec, key=spec.digest, status=status)

    def module(self):
        return self.spec.module().eval()

    def weights(self):
        return {name: tensor.numpy() for name, tensor in self.module().state_dict().items()}


def paper(*specs, learnt=lambda run: True, **choice):
    """One study, with three seeds of each spec."""
    labelled = [LabelledSpec("one", spec, {"decoder": str(number)}) for number, spec in enumerate(specs)]
    study = SimpleNamespace(seeded=lambda preset, spec: spec.seeds(range(3)))
    return SimpleNamespace(explorer=DecoderChoice(lambda preset: labelled, learnt, **choice), studies={"one": study})


@pytest.fixture
def results(tmp_path):
    folder = Results(tmp_path)
    folder.__class__ = type("WithStudy", (Results,), {"studies": ["one"]})
    return folder


def store(*specs, status="done"):
    runs = {spec.digest: FakeRun(spec, status) for spec in specs}
    return SimpleNamespace(find=runs.get)


def collected(results, own, runs):
    said = []
    collect(results, own, None, runs, said.append)
    return kept_decoders(Results(results.path)), said


def test_the_first_seed_that_learnt_is_kept(results):
    own = paper(SMALL, learnt=lambda run: run.spec.seed > 0)
    (kept,), said = collected(results, own, store(*SMALL.seeds(range(3))))
    assert (kept.spec.seed, kept.key, kept.name, said) == (1, SMALL.replace(seed=1).digest, "decoder 0", [])
    inputs = TASK.codes(TASK.grid.points).float()
    assert torch.equal(kept.module()(inputs), kept.spec.module().eval()(inputs))


def test_large_weights_are_rounded_within_the_tolerance(results):
    ((kept,), _) = collected(results, paper(LARGE), store(LARGE))
    assert {array.dtype for array in kept.weights.values()} == {np.dtype("int16"), np.dtype("float32")}
    inputs = TASK.codes(TASK.grid.points).float()
    moved = (kept.module()(inputs) - LARGE.module().eval()(inputs)).abs().max()
    assert 0 < moved <= explorer.TOLERANCE


def test_weights_that_may_not_be_rounded_are_exact(results, monkeypatch):
    monkeypatch.setattr(explorer, "TOLERANCE", 0.0)
    ((kept,), _) = collected(results, paper(LARGE), store(LARGE))
    assert kept.scales == {}
    assert all(np.array_equal(array, FakeRun(LARGE).weights()[name]) for name, array in kept.weights.items())


def test_what_does_not_fit_is_left_out_and_said(results, monkeypatch):
    monkeypatch.setattr(explorer, "LARGEST", 10_000)
    kept, said = collected(results, paper(SMALL, OTHER_GRID, LARGE), store(SMALL, OTHER_GRID, LARGE))
    assert [own.spec for own in kept] == [SMALL]
    assert len(said) == 1
    assert said[0].endswith("decoder 1; decoder 2")


def test_untrained_and_diverged_runs_are_not_kept(results):
    assert collected(results, paper(SMALL), store()) == ([], [])
    assert collected(results, paper(SMALL), store(SMALL, status="diverged")) == ([], [])
    assert results.decoders is None


def test_what_is_kept_stays_without_the_store(results):
    collected(results, paper(SMALL, LARGE), store(SMALL, LARGE))
    before = results.decoders
    kept, _ = collected(results, paper(SMALL, LARGE), store())
    assert len(kept) == 2
    assert results.decoders == before
    kept, _ = collected(results, paper(LARGE), store())  # another preset has no such decoder
    assert [own.spec for own in kept] == [LARGE]


def test_what_takes_long_to_measure_is_measured_once(results):
    collected(results, paper(SMALL), store(SMALL))  # a folder from before
    measured = []

    def measure(decoder):
        measured.append(decoder.key)
        return {"errors": np.arange(3.0), "breaks_at": np.array(1)}

    for own in (store(), store(SMALL)):
        ((kept,), _) = collected(results, paper(SMALL, measure=measure), own)
        assert {name: array.tolist() for name, array in kept.measured.items()} == {"errors": [0, 1, 2], "breaks_at": 1}
        assert kept.weights.keys() == FakeRun(SMALL).weights().keys()
    assert measured == [SMALL.digest]


def test_a_damaged_file_is_one_line_and_made_again(results):
    collected(results, paper(SMALL), store(SMALL))
    (results.path / EXPLORER).write_bytes(b"?")
    with pytest.raises(InvalidValue, match=r"explorer\.safetensors: content changed") as error:
        kept_decoders(results)
    assert "\n" not in str(error.value)
    assert EXPLORER in results.damaged()
    assert len(collected(results, paper(SMALL), store(SMALL))[0]) == 1
