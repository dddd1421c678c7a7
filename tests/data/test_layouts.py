"""Every layout gives the same images for the same factor values, and is read where it lies if it can be."""

import gc
import os
import pickle

import h5py
import numpy as np
import pytest
import torch

from recombine import ArrayTask
from recombine.data import images as opening
from recombine.data import open_images
from recombine.data.images import FilePixels
from recombine.data.readers import MPI3D_SIZES, PUBLISHED
from recombine.errors import InvalidValue
from tests.data.files import (
    COLUMNS,
    ROWS,
    SIDE,
    csv_text,
    factors,
    images,
    labels,
    mpi3d_npz,
    picture_folder,
    shapes_hdf5,
    sprites_npz,
)

GREY = {
    "dSprites, packed": lambda folder: sprites_npz(folder / "a.npz"),
    "dSprites, plain": lambda folder: sprites_npz(folder / "a.npz", packed=False),
    "HDF5 in dSprites' keys": lambda folder: shapes_hdf5(
        folder / "a.h5", packed=False, images=None, labels=None, imgs=images(), latents_values=labels()
    ),
    "folder": lambda folder: picture_folder(folder / "pictures"),
    "its CSV": lambda folder: picture_folder(folder / "pictures") / "labels.csv",
}
COLOUR = {
    "3D Shapes, packed": lambda folder: shapes_hdf5(folder / "a.h5"),
    "3D Shapes, plain": lambda folder: shapes_hdf5(folder / "a.h5", packed=False),
    "MPI3D": lambda folder: mpi3d_npz(folder / "a.npz"),
    "folder": lambda folder: picture_folder(folder / "pictures", channels=3),
}


def expected(channels=0):
    """Channels first, 0 … 1."""
    stored = torch.from_numpy(images(channels)).float() / 255
    return stored.movedim(-1, 1) if channels else stored


@pytest.mark.parametrize("kept", [0, opening.IN_MEMORY], ids=["in a file", "in memory"])
@pytest.mark.parametrize("layout", GREY)
def test_grey_layouts(layout, kept, tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "IN_MEMORY", kept)
    task = ArrayTask(data=GREY[layout](tmp_path), holdout="none")
    assert task.grid.names == ("shape", "x", "y")
    assert task.grid.shape == (2, COLUMNS, ROWS)
    assert task.image_shape == (SIDE, SIDE)
    assert torch.equal(task.render(task.grid.points), expected())
    assert isinstance(task.source.pixels, FilePixels) or kept


@pytest.mark.parametrize("layout", COLOUR)
def test_colour_layouts(layout, tmp_path):
    task = ArrayTask(data=COLOUR[layout](tmp_path), holdout="none")
    assert task.image_shape == (3, SIDE, SIDE)
    assert torch.equal(task.render(task.grid.points), expected(3))


@pytest.mark.parametrize("key", ["imgs", "images"])
@pytest.mark.parametrize("kind", ["npz", "h5"])
def test_one_array_per_factor_with_names_of_categories(kind, key, tmp_path):
    columns = {name: np.array(values) for name, values in factors().items()}
    if kind == "npz":
        np.savez(tmp_path / "a.npz", **{key: images()}, **columns, about=np.array("other keys are ignored"))
    else:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file[key] = images()
            file.create_group("others")
            for name, values in columns.items():
                file[name] = values.astype("S") if values.dtype.kind == "U" else values
    task = ArrayTask(data=tmp_path / f"a.{kind}", holdout="none")
    assert task.levels["shape"] == ("heart", "square")
    assert task.data == ArrayTask(images(), factors()).data


def test_labels_of_names_and_numbers_in_one_array_are_read_as_in_a_csv(tmp_path):
    mixed = np.stack([np.array(values).astype(str) for values in factors().values()], axis=1)
    task = ArrayTask(data=sprites_npz(tmp_path / "a.npz", latents_values=mixed), holdout="none")
    assert task.levels == {"shape": ("heart", "square"), "x": (0.0, 1.0, 2.0), "y": (0.0, 0.5, 1.0, 1.5)}
    assert task.data == ArrayTask(images(), factors()).data


def test_one_identity_for_the_same_data_in_any_file(tmp_path):
    columns = dict(zip(("shape", "x", "y"), labels().T, strict=True))
    identity = ArrayTask(images(), columns).data
    for name, kind in {"a": {}, "b": {"packed": False}, "c": {"imgs": images()[..., None]}}.items():
        assert open_images(sprites_npz(tmp_path / f"{name}.npz", **kind)).digest == identity
    assert ArrayTask(images(3), columns).data != identity


def test_another_pixel_value_or_name_is_another_identity():
    columns = factors()
    identity = ArrayTask(images(), columns).data
    other = images()
    other[7, 2, 3] ^= 1
    assert ArrayTask(other, columns).data != identity
    assert ArrayTask(images(), columns | {"y": [v + 1 for v in columns["y"]]}).data != identity
    assert ArrayTask(images(), {n.upper(): v for n, v in columns.items()}).data != identity


@pytest.mark.parametrize(
    ("delimiter", "decimal", "line_end", "encoding"),
    [
        (",", ".", "\r\n", "utf-8-sig"),
        (";", ".", "\r", "utf-8"),
        ("\t", ",", "\n", "utf-16"),
    ],
)
def test_a_csv_of_any_spreadsheet(delimiter, decimal, line_end, encoding, tmp_path):
    text = csv_text(delimiter, line_end, decimal).encode(encoding)
    columns = open_images(picture_folder(tmp_path / "pictures", text)).columns
    assert columns["y"].tolist() == factors()["y"]
    assert columns["shape"].tolist() == factors()["shape"]


def test_black_and_white_bytes_are_whole_numbers(tmp_path):
    """dSprites' bytes are 0 and 1."""
    binary = (images() > 127).astype(np.uint8)
    task = ArrayTask(data=sprites_npz(tmp_path / "a.npz", imgs=binary))
    assert torch.equal(task.render(task.grid.points), torch.from_numpy(binary).float())


def test_published_names_and_sizes(tmp_path):
    assert [len(names) for names in PUBLISHED.values()] == [6, 6, 7]
    assert all(int(np.prod(sizes)) == count for count, sizes in MPI3D_SIZES.items())
    values = np.array(np.meshgrid([1.0], [1, 2, 3], [0.5, 1.0], [0.0], [0, 1], [0.0], indexing="ij")).reshape(6, -1).T
    file = sprites_npz(tmp_path / "a.npz", imgs=images()[:12], latents_values=values, factor_names=None)
    assert ArrayTask(data=file).grid.names == ("shape", "scale", "posX"), "what does not vary is left out"


def test_nothing_is_unpickled(tmp_path):
    class Dangerous:
        def __reduce__(self):
            return exec, ("raise SystemExit('unpickled')",)

    file = sprites_npz(tmp_path / "a.npz", metadata=np.array(Dangerous(), dtype=object))
    assert len(open_images(file)) == 24
    with pytest.raises(SystemExit):
        np.load(file, allow_pickle=True)["metadata"]


def test_what_is_unpacked_is_used_again_until_the_file_changes(tmp_path, cache_folder, monkeypatch):
    monkeypatch.setattr(opening, "IN_MEMORY", 0)
    file = sprites_npz(tmp_path / "a.npz")
    digest = open_images(file).digest
    assert sorted(path.suffix for path in cache_folder.iterdir()) == [".json", ".json", ".pixels"]
    gc.collect()
    with monkeypatch.context() as unread:
        unread.setattr("recombine.data.readers.NpzFile.blocks", None)
        assert open_images(file).digest == digest
        assert open_images(digest).path == file
    sprites_npz(tmp_path / "a.npz", imgs=images()[::-1])
    gc.collect()
    assert open_images(file).digest != digest
    with pytest.raises(Exception, match="has changed since"):
        open_images(digest)


def test_unpacked_images_that_were_damaged_or_deleted_are_unpacked_again(tmp_path, cache_folder, monkeypatch):
    monkeypatch.setattr(opening, "IN_MEMORY", 0)
    file = sprites_npz(tmp_path / "a.npz")
    open_images(file)
    (unpacked,) = cache_folder.glob("*.pixels")
    for damage in (lambda: unpacked.write_bytes(b"short"), unpacked.unlink):
        damage()
        gc.collect()
        opened = open_images(file)
        assert np.array_equal(opened.pixels.take(np.arange(24)), images())


@pytest.mark.parametrize("rows", [[5, 2], [2, 3, 4], [0], [23, 0, 1, 9], []], ids=str)
def test_no_more_is_read_than_asked_for(rows, tmp_path, monkeypatch):
    """Memory does not grow with the file: rows that lie together are one read, and nothing else is read."""
    opened = open_images(sprites_npz(tmp_path / "a.npz", packed=False))
    reads = []

    def counted(descriptor, buffers, offset):
        reads.append(len(buffers[0]))
        return preadv(descriptor, buffers, offset)

    preadv = os.preadv
    monkeypatch.setattr("os.preadv", counted)
    taken = opened.pixels.take(np.array(rows, dtype=np.int64))
    assert np.array_equal(taken, images()[rows])
    assert sum(reads) == taken.nbytes
    assert len(reads) == sum(row - 1 not in rows[max(0, k - 1) : k] for k, row in enumerate(rows))


def test_a_file_that_is_cut_short_while_it_is_used(tmp_path):
    file = sprites_npz(tmp_path / "a.npz", packed=False)
    opened = open_images(file)
    os.truncate(file, 500)
    with pytest.raises(InvalidValue, match="not truncated while in use"):
        opened.pixels.take(np.array([20]))


def test_copies_in_other_processes_are_opened_from_the_file(tmp_path):
    task = ArrayTask(data=sprites_npz(tmp_path / "a.npz", packed=False))
    sent = pickle.dumps(task.source)
    assert len(sent) < 1000
    assert pickle.loads(sent).digest == task.data
    arrays = ArrayTask(images(), factors())
    sent = pickle.dumps(arrays)
    del arrays
    gc.collect()
    again = pickle.loads(sent)
    assert torch.equal(again.render(again.grid.points), expected())
