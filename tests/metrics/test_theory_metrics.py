"""The theory's stage metrics: planted stages, their functions' numbers, and none where something is missing."""

from functools import partial

import pytest
import torch

import recombine as rc
from recombine.metrics import gram_matrix, partial_factorization, theory_metrics
from recombine.metrics.registry import STAGE_METRICS
from recombine.theory.factorization import linear_factorization, unit_selectivity
from recombine.theory.projections import both_grams, point_coordinates
from recombine.theory.reversibility import factor_recovery
from tests.metrics.comparison import columns_of, stage_over
from tests.theory.chains import COUNT, GRID, blocks, pooled
from tests.theory.test_transport import box

NAMES = (
    "kernel_axis",
    "factor_recovery",
    "factor_recovery_held_out",
    "reversibility",
    "additivity",
    "hole_dependence",
    "hole",
)
COLUMNS = {column.name for name in NAMES for column in STAGE_METRICS[name].columns}


FACTORIZATION_TESTS = ("linear_factorization", "partial_grouping", "unit_selectivity")


def evaluated(features, shape, held_out=None, exact=None, names=NAMES):
    return columns_of(stage_over(features, shape, held_out, exact), names)


def factorization_of(features, shape, held_out=None):
    return evaluated(features, shape, held_out, names=FACTORIZATION_TESTS)


def test_a_block_code_and_its_pooling():
    features = torch.stack([blocks(GRID), pooled(blocks(GRID))])
    values = evaluated(features, (COUNT, COUNT), box(3, 9))
    assert set(values) == COLUMNS
    assert values["additivity"].tolist() == pytest.approx([1, 1])
    assert values["partial_factorization"].tolist() == pytest.approx([1, 1])
    assert values["above_delta"].tolist() == pytest.approx([1, 1])
    assert values["jacobian_rank"].tolist() == [2, 1]
    assert values["local_loss"].tolist() == [[0, 0], [0, 1]]
    assert values["factor_recovery"][0].tolist() == pytest.approx([1, 1], abs=0.02)
    assert values["factor_recovery"][1].tolist() == pytest.approx([1, 0], abs=0.02)
    assert values["hole_openness"][0].item() > 0.6
    assert values["hole_openness"][1].item() == 0
    assert values["hole_misplaced"].tolist() == [0, 0]
    assert values["hole_dependence"][0].item() > 0.05
    assert values["hole_dependence"][1].item() == 0


def test_columns_are_the_functions_numbers():
    features = torch.randn(30, 7, generator=torch.Generator().manual_seed(0)) + 1
    values = evaluated(features, (5, 6))
    assert set(values) == COLUMNS - {"factor_recovery_held", "hole_dependence", "hole_openness", "hole_misplaced"}
    expected = partial_factorization(gram_matrix(features, "cosine"), (5, 6))
    assert values["partial_factorization"].item() == pytest.approx(expected.item())
    assert torch.allclose(values["factor_recovery"], factor_recovery(features, stage_over(features, (5, 6)).points))


def test_small_grids_and_stages_of_zeros():
    one = evaluated(torch.ones(1, 2), (1,), exact=torch.ones(1, 1, 1))
    assert "factor_recovery" not in one
    few = evaluated(torch.zeros(6, 2), (2, 3), torch.arange(6) == 4)
    assert few["partial_factorization"].isnan()
    assert few["hole_openness"].item() == 0
    line = evaluated(torch.arange(6.0)[:, None], (6,), torch.arange(6) == 4)
    assert set(line) == {
        "factor_recovery", "factor_recovery_held", "jacobian_rank", "local_loss", "hole_openness", "hole_misplaced",
    }  # fmt: skip
    assert line["hole_openness"].item() == pytest.approx(1)


def mixed(features, size=6):
    return features @ torch.randn(features.shape[-1], size, generator=torch.Generator().manual_seed(0)).double()


def plane(count=7):
    return torch.cartesian_prod(*[torch.linspace(-1, 1, count)] * 2).double()


def test_a_rotated_code_passes_and_a_table_does_not():
    x, y = plane().unbind(dim=1)
    code = mixed(torch.stack([x, x**2, y, y**3], dim=1))
    table = torch.randn(49, 6, generator=torch.Generator().manual_seed(1)).double()
    values = factorization_of(torch.stack([code, table]), (7, 7))
    assert values["linear_factorization"][0].item() > 0.99
    assert values["linear_factorization"][1].item() < 0.5
    assert values["linear_factorization_p"][0].item() == pytest.approx(0.05)
    assert "grouping" not in values, "with two factors there is nothing to group"
    assert values["unit_selectivity"][0].item() < 0.95


def test_points_and_their_coordinates_are_tested_alike():
    x, y = plane(6).unbind(dim=1)
    code = torch.stack([x, x**2, y, x * y], dim=1)
    features = code @ torch.randn(2, 4, 50, generator=torch.Generator().manual_seed(2)).double()
    coordinates = point_coordinates(both_grams(features)[0])
    assert torch.allclose(both_grams(coordinates)[0], both_grams(features)[0], atol=1e-8)
    expected = linear_factorization(features, (6, 6), permutations=0).score
    assert torch.allclose(factorization_of(features, (6, 6))["linear_factorization"], expected, atol=1e-4)


def test_factors_that_are_held_together_are_one_group():
    x, y, z = torch.cartesian_prod(*[torch.linspace(-1, 1, 5)] * 3).double().unbind(dim=1)
    together = mixed(torch.stack([x * y, x + y**2, z, z**2], dim=1))
    apart = mixed(torch.stack([x, y, z, z**2], dim=1))
    groups = factorization_of(torch.stack([together, apart]), (5, 5, 5))["grouping"]
    assert groups.tolist() == [[0, 0, 1], [0, 1, 2]]


def test_units_of_one_factor_each_are_selective():
    x, y = plane().unbind(dim=1)
    separate = torch.stack([x, y, y**2, torch.ones_like(x)], dim=1)
    values = factorization_of(torch.stack([separate, separate * 0]), (7, 7))["unit_selectivity"]
    assert values[0].item() == pytest.approx(1)
    assert values[1].isnan()
    features = torch.randn(49, 9, generator=torch.Generator().manual_seed(3))
    expected = unit_selectivity(features, (7, 7)).share.amax(dim=-1).mean()
    assert factorization_of(features, (7, 7))["unit_selectivity"].item() == pytest.approx(expected.item())


def test_what_cannot_be_tested_has_no_number():
    constant = torch.stack([torch.ones(49, 3).double(), plane() @ torch.ones(2, 3).double()])
    values = factorization_of(constant, (7, 7))
    assert values["linear_factorization"].isnan().tolist() == [True, False]
    row = torch.arange(49) < 7  # a value of x that is never kept
    assert factorization_of(plane(), (7, 7), row)["linear_factorization"].isnan()


def test_a_flow_is_trained_when_a_diagnosis_is_thorough(monkeypatch):
    short = partial(theory_metrics.nonlinear_factorization, steps=20, permutations=0)
    monkeypatch.setattr(theory_metrics, "nonlinear_factorization", short)
    module = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    usual = rc.diagnose(module, "x=0:5,y=0:5")
    assert not {"nonlinear_factorization", "linear_factorization"} & set(usual)
    result = rc.diagnose(module, "x=0:5,y=0:5", thorough=["nonlinear_factorization", "linear_factorization"])
    assert (result["nonlinear_factorization"].values > 0.95).all()
    assert (result["linear_factorization"].values > 0.99).all()
