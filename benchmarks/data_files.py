"""Make files as large as the published datasets, in their layouts, with synthetic images.

    python -m benchmarks.data_files sprites.npz       # dSprites' layout: 737 280 × 64², compressed (3.0 GB unpacked)
    python -m benchmarks.data_files shapes.h5         # 3D Shapes' layout: 480 000 × 64² × 3, gzip (5.9 GB unpacked)
    python -m benchmarks.data_files scattered.npz     # dSprites' layout with random positions: 100 000 × 64² (0.4 GB)

`--share 0.01` makes smaller files, with fewer values of the slowest factor.
"""

from __future__ import annotations

import argparse
import colorsys
import itertools
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

SIDE = 64
SPRITES = {"color": 1, "shape": 3, "scale": 6, "orientation": 40, "posX": 32, "posY": 32}
SHAPES = {"floor_hue": 10, "wall_hue": 10, "object_hue": 10, "scale": 8, "shape": 4, "orientation": 15}
SCATTERED = 100_000
HORIZON = 36
"""Row at which the wall meets the floor."""
ROOM = 1.1
"""Free disk space needed, as a multiple of the file's unpacked size."""


def outline(shape: int, scale: float, angle: float, side: int = 32) -> np.ndarray:
    """Return a mask of a rotated square, ellipse, heart or triangle."""
    axis = np.linspace(-1.6, 1.6, side) / scale
    x, y = np.meshgrid(axis, axis)
    x, y = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y
    if shape == 0:
        return (np.abs(x) < 0.8) & (np.abs(y) < 0.8)
    if shape == 1:
        return x**2 + (2 * y) ** 2 < 1
    if shape == 2:
        return (x**2 + y**2 - 0.6) ** 3 + x**2 * y**3 < 0
    return (y > -0.7) & (y < 0.9 - 2 * np.abs(x))


def sprites(counts: dict[str, int]) -> Iterator[np.ndarray]:
    """Yield the images of dSprites' layout, all positions of a sprite at a time."""
    shapes = itertools.product(range(counts["shape"]), range(counts["scale"]), range(counts["orientation"]))
    for shape, scale, turn in shapes:
        sprite = outline(shape, 0.5 + 0.1 * scale, 2 * np.pi * turn / 39)
        block = np.zeros((counts["posX"] * counts["posY"], SIDE, SIDE), dtype=np.uint8)
        for k, (x, y) in enumerate(itertools.product(range(counts["posX"]), range(counts["posY"]))):
            block[k, y : y + 32, x : x + 32] = sprite
        yield block


def shapes(counts: dict[str, int]) -> Iterator[np.ndarray]:
    """Yield the images of 3D Shapes' layout, all objects for three given hues at a time."""
    objects = itertools.product(range(counts["scale"]), range(counts["shape"]), range(counts["orientation"]))
    masks = np.zeros((counts["scale"] * counts["shape"] * counts["orientation"], SIDE, SIDE, 1), dtype=bool)
    for k, (scale, shape, turn) in enumerate(objects):
        masks[k, 20:52, 16:48, 0] = outline(shape, 0.75 + scale / 14, np.deg2rad(-30 + turn * 60 / 14))
    hues = [np.array([round(255 * part) for part in colorsys.hsv_to_rgb(k / 10, 1, 1)], np.uint8) for k in range(10)]
    for floor, wall, thing in itertools.product(
        *(range(counts[f"{name}_hue"]) for name in ("floor", "wall", "object"))
    ):
        scene = np.empty((SIDE, SIDE, 3), dtype=np.uint8)
        scene[:HORIZON], scene[HORIZON:] = hues[wall], hues[floor]
        yield np.where(masks, hues[thing], scene)


def values(counts: dict[str, int], ranges: dict[str, tuple[float, float]]) -> np.ndarray:
    """Return a row of factor values for each image."""
    columns = [np.linspace(*ranges[name], count) if count > 1 else [ranges[name][0]] for name, count in counts.items()]
    return np.stack(np.meshgrid(*columns, indexing="ij"), axis=-1).reshape(-1, len(counts)).astype(np.float64)


def write_sprites(path: Path, counts: dict[str, int]) -> None:
    """Write a compressed .npz in dSprites' layout, block by block."""
    ranges = {"color": (1, 1), "shape": (1, 3), "scale": (0.5, 1), "orientation": (0, 2 * np.pi), "posX": (0, 1)}
    labels = values(counts, {**ranges, "posY": (0, 1)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        write_images(archive, sprites(counts), latents_values=labels)


def write_scattered(path: Path, count: int) -> None:
    """Write an uncompressed .npz of hearts at random positions, block by block."""
    places, sprite = np.random.default_rng(0).uniform(0, 32, (count, 2)), outline(2, 0.8, 0.0)

    def blocks() -> Iterator[np.ndarray]:
        for part in np.array_split(places, max(1, count // 1000)):
            block = np.zeros((len(part), SIDE, SIDE), dtype=np.uint8)
            for image, (x, y) in zip(block, part.astype(int), strict=True):
                image[y : y + 32, x : x + 32] = sprite
            yield block

    with zipfile.ZipFile(path, "w") as archive:
        write_images(archive, blocks(), latents_values=places, factor_names=np.array(["x", "y"]))


def write_images(archive: zipfile.ZipFile, blocks: Iterator[np.ndarray], **arrays: np.ndarray) -> None:
    """Write images block by block, and the arrays that describe them."""
    with archive.open("imgs.npy", "w", force_zip64=True) as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(arrays["latents_values"]), SIDE, SIDE)}
        npy.write_array_header_1_0(stream, header)
        for block in blocks:
            stream.write(block.data)
    for name, array in arrays.items():
        with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
            npy.write_array(stream, array)


def write_shapes(path: Path, counts: dict[str, int]) -> None:
    """Write a gzip-compressed HDF5 file in 3D Shapes' layout, block by block."""
    import h5py

    ranges = dict.fromkeys(counts, (0.0, 0.9)) | {"scale": (0.75, 1.25), "shape": (0, 3), "orientation": (-30, 30)}
    labels = values(counts, ranges)
    with h5py.File(path, "w") as file:
        file.create_dataset("labels", data=labels)
        images = file.create_dataset(
            "images", (len(labels), SIDE, SIDE, 3), np.uint8, chunks=(32, SIDE, SIDE, 3), compression="gzip",
            compression_opts=1,
        )  # fmt: skip
        row = 0
        for block in shapes(counts):
            images[row : row + len(block)] = block
            row += len(block)


def make(path: Path, share: float = 1.0) -> None:
    """Write a file in the layout that its suffix implies, if there is enough disk space."""
    if path.stem == "scattered":
        write_scattered(path, round(share * SCATTERED))
        return
    is_sprites = path.suffix == ".npz"
    counts = dict(SPRITES if is_sprites else SHAPES)
    slowest = "orientation" if is_sprites else "floor_hue"
    counts[slowest] = max(2, round(share * counts[slowest]))
    size = np.prod(list(counts.values()), dtype=np.int64) * SIDE**2 * (1 if is_sprites else 3)
    if shutil.disk_usage(path.absolute().parent).free < ROOM * 2 * size:
        raise SystemExit(
            f"{path}: {2 * ROOM * size / 1e9:.1f} GB of free disk space are needed, for the file and for unpacking it"
        )
    (write_sprites if is_sprites else write_shapes)(path, counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, nargs="+")
    parser.add_argument("--share", type=float, default=1.0)
    words = parser.parse_args()
    for path in words.path:
        make(path, words.share)


if __name__ == "__main__":
    main()
