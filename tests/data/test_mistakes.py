"""Whatever is wrong with data is one line that names the field, the value and what is allowed; nothing is written."""

import io
import os
import re
import struct
import zipfile
import zlib

import h5py
import numpy as np
import pytest
from PIL import Image

from recombine import ArrayTask
from recombine.data import images as opening
from recombine.errors import InvalidValue
from tests.data.files import (
    SIDE,
    factors,
    images,
    labels,
    mpi3d_npz,
    picture_folder,
    shapes_hdf5,
    sprites_npz,
)


def changed_labels(row, column, value):
    values = labels()
    values[row, column] = value
    return values


def text(folder, content, name="labels.csv"):
    folder.mkdir()
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def cut(path, share=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


def flipped_inside(path):
    """A compressed array with a wrong byte in its middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)
    return path


def with_picture(folder, row, content):
    if content is None:
        (folder / f"image {row}.png").unlink()
    else:
        (folder / f"image {row}.png").write_bytes(content)
    return folder


def png(array=None, mode=None, kind="PNG"):
    buffer = io.BytesIO()
    image = Image.fromarray(np.zeros((SIDE, SIDE), np.uint8) if array is None else array)
    (image.convert(mode) if mode else image).save(buffer, format=kind)
    return buffer.getvalue()


def png_header(width, height):
    """A PNG that says it is large, and has no pixels."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0), b"IDAT" + zlib.compress(bytes(9))]
    written = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def bomb(path, claimed):
    """An archive whose array says that it is larger than it is."""
    sprites_npz(path, imgs=None)
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {claimed}, }}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("imgs.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(10**6))
    return path


def linked(path):
    shapes_hdf5(path.with_name("other.h5"))
    with h5py.File(path, "w") as file:
        file["images"] = h5py.ExternalLink("other.h5", "images")
    return path


def touched(path, content=b"?"):
    path.write_bytes(content)
    return path


def grouped(path):
    with h5py.File(path, "w") as file:
        file.create_group("images")
    return path


def pipe(path):
    os.mkfifo(path)
    return path


FILES = {
    "no such file": (lambda d: d / "none.npz", "an existing file or folder"),
    "another kind of file": (lambda d: touched(d / "a.txt"), "an .npz or HDF5"),
    "a pipe": (lambda d: pipe(d / "a.npz"), "a valid .npz file"),
    "truncated .npz": (lambda d: cut(sprites_npz(d / "a.npz")), "a valid .npz file"),
    "damaged .npz": (lambda d: flipped_inside(sprites_npz(d / "a.npz", metadata=None)), "a valid .npz file"),
    "no images": (lambda d: sprites_npz(d / "a.npz", imgs=None), "one of the keys imgs, images"),
    "no factors": (lambda d: sprites_npz(d / "a.npz", latents_values=None), "the key latents_values"),
    "images as objects": (lambda d: sprites_npz(d / "a.npz", imgs=np.array([[[{}]]], dtype=object)), "uint8"),
    "labels as objects": (lambda d: sprites_npz(d / "a.npz", latents_values=labels().astype(object)), "unpickled"),
    "channels first": (lambda d: sprites_npz(d / "a.npz", imgs=images(3).transpose(0, 3, 1, 2).copy()), "last"),
    "16 bits": (lambda d: sprites_npz(d / "a.npz", imgs=images().astype(np.uint16)), "uint8"),
    "columns first": (lambda d: sprites_npz(d / "a.npz", imgs=np.asfortranarray(images())), "C order"),
    "NaN pixels": (lambda d: sprites_npz(d / "a.npz", imgs=np.full((24, 6, 6), np.nan)), "from 0 to 1"),
    "labels of another length": (lambda d: sprites_npz(d / "a.npz", latents_values=labels()[:9]), "24 rows"),
    "NaN": (lambda d: sprites_npz(d / "a.npz", latents_values=changed_labels(4, 2, np.nan)), "finite numbers (row 4)"),
    "rounding": (lambda d: sprites_npz(d / "a.npz", latents_values=changed_labels(4, 2, 1e-14)), "than rounding"),
    "a combination twice": (
        lambda d: sprites_npz(d / "a.npz", latents_values=changed_labels(1, 2, 0.0)), "(see rows 0 and 1"),
    "names twice": (lambda d: sprites_npz(d / "a.npz", factor_names=np.array(["x", "x", "y"])), "different names"),
    "a bomb": (lambda d: bomb(d / "a.npz", (10**7, 4096, 4096)), "the size in its header"),
    "sizes that do not fit": (lambda d: mpi3d_npz(d / "a.npz", factor_sizes=np.array([5, 5])), "product is 24"),
    "truncated HDF5": (lambda d: cut(shapes_hdf5(d / "a.h5"), 0.9), "a valid HDF5 file"),
    "HDF5 that points elsewhere": (lambda d: linked(d / "a.h5"), "not a link"),
    "folder without a CSV": (lambda d: text(d / "f", "", "read.me"), "one .csv file"),
    "CSV without files": (lambda d: text(d / "f", "x,y\n1,2\n"), "one column of file names"),
    "ragged CSV": (lambda d: text(d / "f", "file,x\na.png,1\nb.png\n"), "2 values, as in the header"),
    "CSV with a gap": (lambda d: text(d / "f", "file,x,y\na.png,1,1\nb.png,,2\n"), "all numbers or all strings (row 1"),
    "CSV of numbers and texts": (lambda d: text(d / "f", "file,x\na.png,1\nb.png,one\n"), "all numbers or all strings"),
    "CSV that leads out": (lambda d: text(d / "f", "file,x\n../a.png,1\n"), "in the CSV's folder"),
    "missing picture": (lambda d: with_picture(picture_folder(d / "f"), 5, None), "a readable file"),
    "truncated picture": (
        lambda d: with_picture(picture_folder(d / "f"), 5, png(images()[5])[:70]), "a valid PNG or JPEG"),
    "larger picture": (
        lambda d: with_picture(picture_folder(d / "f"), 5, png(np.zeros((9, 9), np.uint8))), "images of one shape"),
    "transparent picture": (
        lambda d: with_picture(picture_folder(d / "f"), 5, png(np.zeros((6, 6, 4), np.uint8))), "transparent"),
    "picture bomb": (
        lambda d: with_picture(picture_folder(d / "f"), 5, png_header(50_000, 50_000)), "4096 at most|Decompression"),
}  # fmt: skip


def files_below(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("mistake", FILES)
def test_a_mistake_in_a_file_is_one_line(mistake, tmp_path, cache_folder, monkeypatch):
    monkeypatch.setattr(opening, "IN_MEMORY", 0)
    make, allowed = FILES[mistake]
    path = make(tmp_path)
    before = files_below(tmp_path)
    with pytest.raises(InvalidValue) as caught:
        ArrayTask(data=path)
    line = str(caught.value)
    assert re.match(r"data[.\w]* must be ", line), line
    assert any(part in line for part in allowed.split("|")), line
    assert "\n" not in line
    assert files_below(tmp_path) == before
    repeated = {"a combination twice", "rounding"}  # which only the grid finds, in a whole file
    assert mistake in repeated or not cache_folder.exists() or not list(cache_folder.iterdir())


def arrays(**changed):
    return {"images": images(), "factors": factors(), **changed}


ARRAYS = {
    "no factors": ({"factors": None}, "factors"),
    "flat images": ({"images": np.zeros((24, 36))}, "images"),
    "a name that is none": ({"factors": {"a b": [0] * 24}}, "factors"),
    "too few values": ({"factors": {"x": [0, 1]}}, "factors.x"),
    "an angular category": ({"angular": ("x",), "categorical": ("x",)}, "angular"),
    "data too": ({"data": "a.npz"}, "data"),
    "angles over a turn": ({"angular": ("x",), "turn": 1.5}, "factors.x"),
    "between images": ({"centers": "real"}, "centers"),
}


@pytest.mark.parametrize("mistake", ARRAYS)
def test_a_mistake_in_arrays_names_its_field(mistake):
    changed, field = ARRAYS[mistake]
    with pytest.raises(InvalidValue) as caught:
        ArrayTask(**arrays(**changed))
    assert caught.value.field == field


@pytest.mark.parametrize("data", ["", "0" * 20, "a\0b.npz"], ids=repr)
def test_data_that_are_no_data(data):
    with pytest.raises(InvalidValue, match=r"^data must be "):
        ArrayTask(data=data)


def test_what_does_not_fit_the_disk_is_refused_before_anything_is_written(tmp_path, cache_folder, monkeypatch):
    monkeypatch.setattr(opening, "IN_MEMORY", 0)
    monkeypatch.setattr(opening, "SPARE_BYTES", 2**60)
    with pytest.raises(InvalidValue, match="small enough for the disk"):
        ArrayTask(data=sprites_npz(tmp_path / "a.npz"))
    assert not list(cache_folder.iterdir())
