"""Datasets as netCDF-4 in memory, since HDF5 does not flush files to disk.

h5netcdf looks up every variable and dimension by name dozens of times: a Dataset of forty variables takes it 0.5 s to
write and 0.3 s to read. h5py takes a tenth.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import h5py
    import xarray

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
"""How the HDF5 dataset of a dimension without coordinates begins its name."""
DIMENSION_ID = "_Netcdf4Dimid"
HIDDEN = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", DIMENSION_ID, "_Netcdf4Coordinates", "_NCProperties"}
"""Attributes by which netCDF-4 describes dimensions in HDF5."""


def encoded(dataset: xarray.Dataset) -> bytes:
    """Return a Dataset as netCDF-4, with numbers compressed."""
    import h5py
    import xarray

    variables, attributes = xarray.conventions.encode_dataset_coordinates(dataset)
    content = io.BytesIO()
    with h5py.File(content, "w", track_order=True) as file:
        for number, (name, size) in enumerate(dataset.sizes.items()):
            if name not in dataset.indexes:
                file.create_dataset(name, (size,), "f4").make_scale(f"{NO_VARIABLE}{size:10}")
                file[name].attrs[DIMENSION_ID] = number
        written = {name: _write(file, str(name), own) for name, own in variables.items()}
        for number, name in enumerate(dataset.sizes):
            if name in dataset.indexes:
                written[name].make_scale(name)
                written[name].attrs[DIMENSION_ID] = number
        scales = {name: file[name] for name in dataset.sizes}
        for name, own in written.items():
            if name not in scales:
                for axis, dimension in enumerate(variables[name].dims):
                    own.dims[axis].attach_scale(scales[dimension])
        file.attrs.update(attributes)
    return content.getvalue()


def _write(file: h5py.File, name: str, variable: xarray.Variable) -> h5py.Dataset:
    """Write the values and attributes of a variable."""
    import h5py
    import xarray

    own = xarray.conventions.encode_cf_variable(variable, name=name)
    values = np.asarray(own.values)
    options: dict[str, Any] = {}
    if values.dtype.kind in "OU":
        values, options["dtype"] = values.astype(object), h5py.string_dtype()
    elif values.ndim:
        options = {"compression": 6, "shuffle": True, "fillvalue": own.attrs.get("_FillValue")}
    data = file.create_dataset(name, data=values, **options)
    data.attrs.update(own.attrs)
    return data


def decoded(content: bytes) -> xarray.Dataset:
    """Return a Dataset from netCDF-4."""
    import h5py
    import xarray

    variables = {}
    with h5py.File(io.BytesIO(content), "r") as file:
        for name, own in file.items():
            if own.attrs.get("NAME", b"").startswith(NO_VARIABLE.encode()):
                continue
            dimensions = [scale[0].name[1:] for scale in own.dims] if "DIMENSION_LIST" in own.attrs else [name]
            values = own[...] if h5py.check_string_dtype(own.dtype) is None else own.asstr()[...].astype(str)
            variables[name] = (dimensions[: values.ndim], values, _shown(own))
        return xarray.decode_cf(xarray.Dataset(variables, attrs=_shown(file)))


def attributes_of(content: bytes) -> dict[str, Any]:
    """Return the attributes of a Dataset in netCDF-4 without decoding its variables."""
    import h5py

    with h5py.File(io.BytesIO(content), "r") as file:
        return _shown(file)


def _shown(own: h5py.File | h5py.Dataset) -> dict[str, Any]:
    shown = {name: value for name, value in own.attrs.items() if name not in HIDDEN}
    return {name: value[0] if np.shape(value) == (1,) else value for name, value in shown.items()}
