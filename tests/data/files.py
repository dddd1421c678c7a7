"""Small data in every layout: sprites of two shapes at x and y, each image told from every other by its pixels."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

SHAPES, COLUMNS, ROWS = ("heart", "square"), 3, 4
SIDE = 6


def factors() -> dict[str, list]:
    """Values in the grid's order: shape (texts), x and y (numbers)."""
    points = [(s, x, y) for s in SHAPES for x in range(COLUMNS) for y in range(ROWS)]
    return {"shape": [p[0] for p in points], "x": [p[1] for p in points], "y": [0.5 * p[2] for p in points]}


def labels() -> np.ndarray:
    """The same as numbers, a column each."""
    columns = factors()
    return np.array([[SHAPES.index(s) for s in columns["shape"]], columns["x"], columns["y"]], dtype=np.float64).T


def images(channels: int = 0) -> np.ndarray:
    """Bytes in which no two images are alike, and some are large."""
    rng = np.random.default_rng(0)
    count = len(SHAPES) * COLUMNS * ROWS
    return rng.integers(0, 256, (count, SIDE, SIDE, *([channels] if channels else [])), dtype=np.uint8)


NAMES = np.array(["shape", "x", "y"])


def sprites_npz(path: Path, *, packed: bool = True, **changed: object) -> Path:
    """dSprites' layout; `changed` replaces keys, or leaves out those that are None."""
    arrays = {
        "imgs": images(), "latents_values": labels(), "latents_classes": labels().astype(int), "factor_names": NAMES,
        "metadata": np.array({"never": "unpickled"}, dtype=object), **changed,
    }  # fmt: skip
    kept = {key: value for key, value in arrays.items() if value is not None}
    (np.savez_compressed if packed else np.savez)(path, **kept)
    return path


def shapes_hdf5(path: Path, *, packed: bool = True, **changed: object) -> Path:
    """3D Shapes' layout."""
    arrays = {"images": images(3), "labels": labels(), "factor_names": NAMES.astype("S"), **changed}
    with h5py.File(path, "w") as file:
        for key, value in arrays.items():
            if value is not None:
                packing = {"chunks": (5, SIDE, SIDE, 3), "compression": "gzip"} if packed and key == "images" else {}
                file.create_dataset(key, data=value, **packing)
    return path


def mpi3d_npz(path: Path, **changed: object) -> Path:
    """MPI3D's layout with sizes of its own: images in the grid's order and nothing else."""
    arrays = {"images": images(3), "factor_sizes": np.array([2, COLUMNS, ROWS]), "factor_names": NAMES, **changed}
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def csv_text(delimiter: str = ",", line_end: str = "\n", decimal: str = ".") -> str:
    """The labels of a folder of images."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=line_end)
    writer.writerow(["file", "shape", "x", "y"])
    for row, values in enumerate(zip(*factors().values(), strict=True)):
        writer.writerow([f"image {row}.png", values[0], values[1], str(values[2]).replace(".", decimal)])
    return text.getvalue()


def picture_folder(path: Path, text: str | bytes | None = None, channels: int = 0) -> Path:
    """A folder of PNG images with a CSV."""
    path.mkdir()
    content = csv_text() if text is None else text
    (path / "labels.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    for row, image in enumerate(images(channels)):
        Image.fromarray(image).save(path / f"image {row}.png")
    return path
