"""Numbers that the claims on the theory are about: one per seed, from the Dataset's part of one arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recombine.reproduction.tables import first_hidden, last_hidden, mean_of_hidden
from recombine.reproduction.tables import output as at_output

if TYPE_CHECKING:
    import xarray


def held_products(networks: xarray.Dataset) -> xarray.DataArray:
    """Mean number of products in held-out outputs, over that of the right images there."""
    return networks["held_products"] - networks["target_products"]


def held_products_finer(networks: xarray.Dataset) -> xarray.DataArray:
    """The number itself, with a third of the error."""
    return networks["held_products_finer"]


def held_products_brightest(networks: xarray.Dataset) -> xarray.DataArray:
    """The number itself, of the pixels in which the target has most energy."""
    return networks["held_products_brightest"]


def all_products(networks: xarray.Dataset) -> xarray.DataArray:
    """The number over the whole grid, of the same pixels."""
    return networks["all_products"]


def kept_products(networks: xarray.Dataset) -> xarray.DataArray:
    """The number over kept points, of the same pixels."""
    return networks["kept_products"]


def linear_split(networks: xarray.Dataset) -> xarray.DataArray:
    """Score of the linear test, mean over the hidden stages; below 0 nothing is predicted, which counts as 0."""
    return mean_of_hidden(clipped(networks["linear_factorization"]))


def linear_split_of_last(networks: xarray.Dataset) -> xarray.DataArray:
    """The same at the last hidden stage."""
    return last_hidden(clipped(networks["linear_factorization"]))


def linear_split_of_output(networks: xarray.Dataset) -> xarray.DataArray:
    """The same at the output."""
    return at_output(clipped(networks["linear_factorization"]))


def nonlinear_split(networks: xarray.Dataset) -> xarray.DataArray:
    """Score of the flow at the last hidden stage, the only one that has it."""
    return clipped(networks["nonlinear_factorization"]).max("stage")


def clipped(score: xarray.DataArray) -> xarray.DataArray:
    """R² that is not below 0: how wrong a prediction is that predicts nothing has no meaning."""
    return score.clip(min=0)


def held_loss(networks: xarray.Dataset) -> xarray.DataArray:
    """What is lost of the factors at held-out points, at the last hidden stage."""
    return 1 - last_hidden(networks["factor_recovery_held"])


def held_loss_of_output(networks: xarray.Dataset) -> xarray.DataArray:
    """The same at the output."""
    return 1 - at_output(networks["factor_recovery_held"])


def loss(networks: xarray.Dataset) -> xarray.DataArray:
    """What is lost over all points, at the last hidden stage."""
    return 1 - last_hidden(networks["factor_recovery"])


def local_loss(networks: xarray.Dataset) -> xarray.DataArray:
    """Share of points at which a factor moves the output in no direction of its own."""
    return at_output(networks["local_loss"])


def mixing(networks: xarray.Dataset) -> xarray.DataArray:
    """Share of the last hidden stage's variance that is no sum of blocks."""
    return 1 - last_hidden(networks["additivity"])


def mixing_of_output(networks: xarray.Dataset) -> xarray.DataArray:
    """The same of the output."""
    return 1 - at_output(networks["additivity"])


def mixing_of_first(networks: xarray.Dataset) -> xarray.DataArray:
    """The same of the first hidden stage."""
    return 1 - first_hidden(networks["additivity"])


def hole_width(networks: xarray.Dataset) -> xarray.DataArray:
    """Width of the hole at the output, in steps between kept neighbours."""
    return at_output(networks["hole_openness"])


def hole_width_of_last(networks: xarray.Dataset) -> xarray.DataArray:
    """The same at the last hidden stage."""
    return last_hidden(networks["hole_openness"])


def hole_width_of_first(networks: xarray.Dataset) -> xarray.DataArray:
    """The same at the first hidden stage."""
    return first_hidden(networks["hole_openness"])


def placed(networks: xarray.Dataset) -> xarray.DataArray:
    """Share of held-out outputs that are not beside those of kept points far away."""
    return 1 - at_output(networks["hole_misplaced"])
