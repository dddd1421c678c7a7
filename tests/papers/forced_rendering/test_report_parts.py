"""What the paper declares for its report: sections, and decoders for the explorer."""

from pathlib import Path

import pytest

import recombine as rc
from recombine.papers.forced_rendering import PAPER
from recombine.papers.forced_rendering.explorer import learnt
from recombine.reproduction.explorer import LARGEST

REFERENCE = Path(__file__).parents[3] / "results" / "paper"


def test_every_figure_and_claim_is_in_one_section():
    for kind, known in (("figures", PAPER.figures), ("claims", PAPER.claims)):
        names = [name for section in PAPER.sections for name in getattr(section, kind)]
        assert sorted(names) == sorted(known)


@pytest.mark.parametrize("name", ["quick", "paper"])
def test_decoders_of_the_explorer_are_trained_by_their_studies(name):
    preset = PAPER.presets[name]
    decoders = PAPER.explorer.decoders(preset)
    assert all(PAPER.studies[own.study].seeded(preset, own.spec) for own in decoders)
    assert len({tuple(own.labels.items()) for own in decoders}) == len(decoders)
    assert {tuple(own.labels) for own in decoders} == {("code", "decoder", "depth", "remedy")}


def test_the_decoders_that_matter_fit_at_the_papers_size():
    decoders = PAPER.explorer.decoders(PAPER.presets["paper"])
    fitting, size = [], 0
    for own in decoders:
        size += 2 * sum(parameter.numel() for parameter in own.spec.module().parameters())
        if size > LARGEST:
            break
        fitting.append(tuple(own.labels.values()))
    remedies = ("none", "stripes, no bumps", "stripes and 100 bumps")
    assert {("bump", "CNN", "4", remedy) for remedy in remedies} <= set(fitting)
    assert {("onehot", "low-rank", "–", remedy) for remedy in ("none", "both penalties")} <= set(fitting)
    assert {own[1] for own in fitting} == {
        "CNN",
        "low-rank",
        "MLP",
        "coordinate MLP",
        "transformer",
        "spatial broadcast",
    }
    assert {own[2] for own in fitting if own[1] == "CNN"} >= {"2", "4"}
    assert all(own.spec.task.grid == decoders[0].spec.task.grid for own in decoders)


def test_a_network_that_saw_nothing_of_the_answer_has_not_learnt(tmp_path):
    task = rc.BumpTask(size=6, encoding="onehot", holdout="none", training="each")
    weak, good = (
        rc.RunSpec(task=task, decoder=rc.MLP(width=64, depth=1), recipe=rc.Recipe(steps=steps, lr=0.01))
        for steps in (1, 300)
    )
    runs = rc.train([weak, good], store=tmp_path / "runs", device="cpu")
    assert [learnt(run) for run in runs] == [False, True]
