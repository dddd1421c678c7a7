"""The theory's stage metrics: their functions' numbers, known ones, and none where something is missing."""

import pytest
import torch

from recombine.metrics import gram_matrix, partial_factorization
from recombine.metrics.registry import STAGE_METRICS
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


def evaluated(features, shape, held_out=None, exact=None):
    return columns_of(stage_over(features, shape, held_out, exact), NAMES)


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
