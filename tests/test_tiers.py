"""`make check` and `make test`: which tests are left to the second."""

import pytest

from tests.conftest import INTEGRATION, TESTS


@pytest.mark.parametrize("name", INTEGRATION)
def test_what_is_left_out_exists(name):
    assert (TESTS / name).exists()
