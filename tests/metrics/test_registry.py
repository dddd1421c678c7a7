"""The metric registry: a metric is one function and its registration, and everyone has it."""

import numpy as np
import pytest
import torch

import recombine as rc
from recombine.diagnosis.drawing import profile_figure
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from recombine.metrics import ensemble_reader, metric_tensor
from recombine.metrics.registry import (
    STAGE_METRICS,
    Column,
    Need,
    Stage,
    StageMetric,
    metric_versions,
    read_stages,
    stage_metric,
    stage_profile,
    usual_metrics,
)
from recombine.papers.forced_rendering import PAPER as DEFAULT
from recombine.reproduction.measuring import Batch, stage_dims, tabulate
from recombine.reproduction.measuring import stage_profile as study_profile
from recombine.reproduction.study import Trials
from recombine.sweep import train
from tests.metrics.comparison import assert_same_profile, stage_over
from tests.small import small_spec

CPU = torch.device("cpu")


@pytest.fixture
def loudness():
    """A dummy metric: all that adding one takes."""

    @stage_metric(
        "loudness",
        Column("loudness", "mean square of a stage", "Eq. 0", heading="loud", panel="loudness", line="mean"),
        Column("loudness_map", "mean square at each point", dims=("point",)),
        Column("loudness_by_factor", "zero for each factor", dims=("factor",)),
        needs=(Need.HOLDOUT,),
        version=7,
    )
    def evaluate(stage: Stage) -> dict[str, torch.Tensor]:
        square = stage.features.square()
        return {
            "loudness": square.mean(dim=(-2, -1)),
            "loudness_map": square.mean(dim=-1),
            "loudness_by_factor": torch.zeros(len(stage.grid.factors)),
        }

    yield evaluate
    STAGE_METRICS.unregister("loudness")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    spec = small_spec("cnn", task={"holdout": "center:2:5"})
    return train([spec], tmp_path_factory.mktemp("store"), device="cpu")[0]


def diagnosed(run, **settings):
    task = run.spec.task
    return rc.diagnose(run.module(), task.grid, encode=task.encoding, holdout=task.held_out, **settings)


def test_a_registered_metric_is_in_diagnosis_summary_figure_and_study(loudness, run):
    result = diagnosed(run)
    assert result["loudness"].dims == ("stage",)
    assert result["loudness"].attrs["description"] == "mean square of a stage"
    assert result["loudness_map"].dims == ("stage", "x", "y")
    assert result["loudness_by_factor"].dims == ("stage", "factor")
    assert result.summary_table()["loud"] == [*(f"{value:.3f}" for value in result["loudness"].values), "–"]
    assert "loudness" in [ax.get_title(loc="left") for ax in profile_figure(result).axes]

    trials = Trials(DEFAULT.preset_named("quick"), CPU, {("cnn",): [run]})
    table = tabulate(trials, ("decoder",), study_profile, stage_dims())
    assert table["loudness"].dims == ("decoder", "seed", "stage")
    assert table["loudness_map"].dims == ("decoder", "seed", "stage", "y", "x")
    assert table["loudness_by_factor"].dims == ("decoder", "seed", "stage")
    np.testing.assert_allclose(table["loudness"].values[0, 0], result["loudness"].values, rtol=1e-5)
    assert metric_versions(["loudness", "tuning"]) == {"loudness": 7, "tuning": 1}
    assert "factor_loudness" in rc.diagnose(torch.nn.Linear(2, 3), "loudness=0:2,y=0:2").dims


def test_targets_are_there_for_a_metric_that_needs_them(run):
    @stage_metric("seen_targets", Column("seen_targets", "how many"), needs=(Need.TARGETS,))
    def evaluate(stage: Stage) -> dict[str, torch.Tensor]:
        return {"seen_targets": torch.tensor(float(len(stage.targets)))}

    try:
        images = run.spec.task.render(run.spec.task.grid.points)
        assert (diagnosed(run, targets=images)["seen_targets"] == 64).all()
        assert "seen_targets" not in diagnosed(run)
        assert (study_profile(Batch([run], CPU))["seen_targets"] == 64).all()
    finally:
        STAGE_METRICS.unregister("seen_targets")


@pytest.mark.parametrize("kind", ["cnn", "mlp"])
@pytest.mark.parametrize("encoding", ["bump", "onehot", "rate"])
def test_diagnose_and_studies_measure_the_same(kind, encoding, tmp_path):
    spec = small_spec(kind, task={"holdout": "center:2:5", "encoding": encoding})
    (run,) = train([spec], tmp_path, device="cpu")
    profile = study_profile(Batch([run], CPU))
    assert_same_profile(diagnosed(run), {name: values[0] for name, values in profile.items()})
    assert set(profile) == set(stage_dims())


def test_every_metric_is_the_same_for_members_together_and_alone():
    specs = small_spec("mlp", task={"holdout": "center:2:5"}).seeds(range(3))
    modules, task = [spec.module() for spec in specs], specs[0].task
    stacked = {name: torch.stack([dict(m.named_parameters())[name].detach() for m in modules])
               for name, _ in modules[0].named_parameters()}  # fmt: skip

    def profile(weights):
        reader = ensemble_reader(modules[0], weights, lambda values: task.codes(values).float())
        exact = metric_tensor(reader, task.grid.points, members=1)
        stages = read_stages(reader, task.grid.points, task.grid, task.held_out, exact=exact, members=1)
        return stage_profile(stages, [metric.name for metric in measured])

    unlike = ("nonlinear_factorization", "partial_grouping")  # a flow takes long; there are two factors
    measured = [metric for name, metric in STAGE_METRICS.items() if name not in unlike]

    together = profile(stacked)
    assert set(together.columns) == {column.name for metric in measured for column in metric.columns}
    for k in range(3):
        alone = profile({name: weight[k : k + 1] for name, weight in stacked.items()})
        for name, values in alone.columns.items():
            for one, all_of_them in zip(values, together.columns[name], strict=True):
                assert one.shape[0] == 1, name
                torch.testing.assert_close(one[0], all_of_them[k], rtol=1e-4, atol=1e-5, equal_nan=True)


def test_names_are_taken_once():
    column = Column("stripe_index", "again")
    for metric in (
        StageMetric("tuning", dict, (), (), 1, True),
        StageMetric("other", dict, (column,), (), 1, True),
        StageMetric("other", dict, (Column("other", "", study="contrast"),), (), 1, True),
    ):
        with pytest.raises(InvalidValue):
            STAGE_METRICS.register(metric)
    with pytest.raises(InvalidValue, match="braille"):
        STAGE_METRICS["braille"]


def test_what_takes_long_is_measured_when_asked_for():
    stage = stage_over(torch.randn(3, 2), (3,))
    stage_metric("patience", Column("patience", ""), thorough=True)(lambda stage: {"patience": torch.ones(())})
    try:
        assert "patience" not in stage_profile([stage], usual_metrics()).columns
        assert "patience" in stage_profile([stage], usual_metrics(["patience"])).columns
        assert set(stage_profile([stage], ["patience"]).columns) == {"patience"}
        module = torch.nn.Linear(1, 2)
        assert "patience" not in rc.diagnose(module, "x=0:2")
        assert "patience" in rc.diagnose(module, "x=0:2", thorough=["patience"])
        with pytest.raises(InvalidValue, match="braille"):
            rc.diagnose(module, "x=0:2", thorough=["braille"])
    finally:
        STAGE_METRICS.unregister("patience")


def test_a_metric_must_give_what_it_declares():
    stage = stage_over(torch.randn(3, 2), (3,))
    stage_metric("liar", Column("truth", ""))(lambda stage: {"lie": torch.zeros(())})
    try:
        with pytest.raises(InvalidValue, match="metric liar"):
            stage_profile([stage], ["liar"])
    finally:
        STAGE_METRICS.unregister("liar")


def test_differences_are_exact_for_a_linear_stage_of_any_spacing():
    grid = FactorGrid((Factor("x", 0, 1, 5), Factor("y", -3, 3, 4)))
    stage = Stage("input", grid.points, grid.points, grid, torch.zeros(20, dtype=torch.bool))
    torch.testing.assert_close(stage.metric, torch.eye(2, dtype=torch.float64).expand(20, 2, 2))
