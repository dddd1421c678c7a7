"""Datasets as content of netCDF-4 files, in memory: HDF5 itself would not flush a file to the disk.

Written by h5netcdf. Read with h5py, since xarray looks up each dimension of each variable many times over, which for
the Datasets of a paper takes five times as long.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py
    import xarray

COMPRESSED = {"zlib": True, "complevel": 6, "shuffle": True}
HIDDEN = {
    "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties",
}  # fmt: skip
"""Attributes that belong to the format."""
DIMENSION_ALONE = b"This is a netCDF dimension but not a netCDF variable"
"""How the name begins of what is there only because a dimension needs it."""


def encoded(dataset: xarray.Dataset) -> bytes:
    """A Dataset as a file's content."""
    variables = dataset.data_vars.items()
    encoding = {name: dict(COMPRESSED) for name, v in variables if v.ndim and v.dtype.kind in "fiub"}
    return bytes(dataset.to_netcdf(engine="h5netcdf", encoding=encoding))


def decoded(content: bytes) -> xarray.Dataset:
    """The Dataset that was written, as `xarray.load_dataset` would give it; raises whatever HDF5 stumbles upon."""
    import h5py
    import xarray

    with h5py.File(io.BytesIO(content), "r") as file:
        nodes = {name: node for name, node in file.items() if isinstance(node, h5py.Dataset)}
        real = {n: own for n, own in nodes.items() if not bytes(own.attrs.get("NAME", b"")).startswith(DIMENSION_ALONE)}
        variables = {name: _variable(file, name, node) for name, node in real.items()}
        raw = xarray.Dataset(variables, attrs=_attributes(file))
    return xarray.decode_cf(raw)


def _variable(file: h5py.File, name: str, node: h5py.Dataset) -> xarray.Variable:
    import h5py
    import xarray

    is_text = h5py.check_string_dtype(node.dtype) is not None
    values = node.asstr()[()] if is_text else node[()]
    if is_text and node.ndim:
        values = values.astype(str)
    dims = [name] * node.ndim  # a variable without a list of dimensions is its own
    if "DIMENSION_LIST" in node.attrs:
        scales = (h5py.h5r.dereference(references[0], file.id) for references in node.attrs["DIMENSION_LIST"])
        dims = [h5py.h5i.get_name(scale).decode().lstrip("/") for scale in scales]
    return xarray.Variable(dims, values, _attributes(node))


def _attributes(node: h5py.File | h5py.Dataset) -> dict[str, Any]:
    """Attributes; one value is no array."""
    found = {name: value for name, value in node.attrs.items() if name not in HIDDEN}
    return {name: value[0] if getattr(value, "shape", None) == (1,) else value for name, value in found.items()}
