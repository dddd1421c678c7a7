"""What studies do with runs that diverged, lists of one, and seeds that only some arms have."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from recombine.panels import of_shared_seeds
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.claims import judge
from recombine.reproduction.results import Results
from recombine.reproduction.study import Trials
from recombine.store import Run
from recombine.sweep import train
from tests.golden import RESULTS
from tests.tiny import TINY

FIGURES, STUDIES = DEFAULT.figures, DEFAULT.studies
GOLDEN = Results(RESULTS)
QUICK = DEFAULT.preset_named("quick")


@dataclass(frozen=True)
class Ended(Run):
    """A run that ended in some way."""

    how: str = "done"

    @property
    def status(self) -> str:
        return self.how


def trials(**arms: str) -> Trials:
    """Arms and how their seeds ended: d for done, x for diverged."""
    return Trials(
        QUICK, torch.device("cpu"),
        {(arm,): [Ended(f"{arm}{k}", Path(), "done" if how == "d" else "diverged") for k, how in enumerate(ends)]
         for arm, ends in arms.items()},
    )  # fmt: skip


def test_pictures_are_of_the_first_run_that_did_not_diverge():
    found = trials(a="xd", b="dd", c="xx")
    assert found.pictured_run("a").key == "a1"
    assert [run.key for _, (run,) in found.pictured.items()] == ["a1", "b0", "c0"]


def test_a_study_whose_first_seed_diverged_still_has_pictures(tmp_path):
    study, preset = STUDIES["tuning"], QUICK.changed([*TINY, "seeds=2", "extra_seeds=2", "steps=5"])
    runs = {run.key: run for run in train(study.specs(preset), tmp_path, device="cpu")}
    lost = study.specs(preset)[0].digest
    runs[lost] = Ended(lost, runs[lost].path, "diverged")
    before = study.measure(study.trials(preset, torch.device("cpu"), {**runs, lost: Run(lost, runs[lost].path)}))
    found = study.measure(study.trials(preset, torch.device("cpu"), runs))
    assert found["map"].notnull().all()
    assert not before["map"].isel(arm=0).equals(found["map"].isel(arm=0))  # the second seed's
    assert before["map"].isel(arm=1).equals(found["map"].isel(arm=1))


# -- lists of one ----------------------------------------------------------------------------------------------------


UNTESTED = ("C23", "C24")
"""They need 5 % of the bumps or less, and two numbers of bumps for a slope."""


def test_short_lists_are_judged_and_drawn(tmp_path):
    """Stripes alone, as the only number of bumps, read back from a file."""
    from matplotlib import pyplot

    data = GOLDEN.dataset("stripes")
    percents = [int(percent) for percent in np.atleast_1d(data.attrs["percents"])]
    others = [int(bumps) for bumps in data["bumps"].values if bumps not in data.attrs["added"]]
    data = data.sel(bumps=sorted({0, *percents, *others}))
    data = data.sel(family=[str(family) for family in data["family"].values if family != "bumps alone"])
    Results(tmp_path).save("stripes", data.assign_attrs(added=[0], shown=0, many=0), "digest")
    results = Results(tmp_path)
    claims = [claim for claim in DEFAULT.claims.values() if claim.studies == ("stripes",)]
    judged = {judgement.claim: judgement for judgement in judge(claims, {"stripes": results.dataset("stripes")})}
    assert list(judged) == [claim.name for claim in claims]
    assert all(judgement.tests for name, judgement in judged.items() if name not in UNTESTED)
    for name in ("fig4", "fig7", "fig15"):
        spec = FIGURES[name]
        data = [(results if study == "stripes" else GOLDEN).dataset(study) for study in spec.studies]
        assert spec.draw(*data).axes
        assert "nan" not in spec.caption(*data) + str(spec.table(*data))
    pyplot.close("all")


# -- seeds that only some arms have ------------------------------------------------------------------------------------


def test_what_is_compared_is_of_the_same_seeds():
    data = GOLDEN.dataset("encodings")["ood_over_blank"].sel(encoding="bump")
    bright, dark = of_shared_seeds(data.sel(holdout="box"), data.sel(holdout="box, dark bumps"))
    assert bright.sizes["seed"] == dark.sizes["seed"] == 1
    assert bright.item() == data.sel(holdout="box").values[0]


def test_regimes_have_an_ideal_an_arm():
    from matplotlib import pyplot

    data = GOLDEN.dataset("regimes").copy(deep=True)
    data["ideal_single_factor"][:] = [0.1, 0.1, 0.1, 0.4, 0.4]
    ax = FIGURES["regimes"].draw(data).axes[2]
    dotted = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"]
    assert dotted == pytest.approx([0.1, 0.1, 0.1, 0.4, 0.4])
    assert [row[-1] for row in FIGURES["regimes"].table(data)[1:]] == ["0.10"] * 3 + ["0.40"] * 2
    pyplot.close("all")
