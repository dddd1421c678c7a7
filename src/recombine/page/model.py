"""Convert a decoder to data for the page: a program or precomputed outputs, true outputs, and the hold-out."""

from __future__ import annotations

import hashlib
import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recombine.decoders import StagedDecoder
from recombine.diagnosis.calling import Call
from recombine.diagnosis.stages import module_stages
from recombine.diagnosis.subject import Trained
from recombine.errors import InvalidValue, RecombineError
from recombine.page.answers import bits, judged, positions, training_set
from recombine.page.calls import Untranslatable
from recombine.page.program import Program
from recombine.page.subject import KNOWN, Called, PageDecoder, factor_codes, mean_code, smooth_factors
from recombine.page.translate import Exported, export, translate
from recombine.reproduction.explorer import STEPS

LARGEST_PROGRAM = 16_000_000  # maximum number of weights in a program
LARGEST_TABLE = 16 << 20  # maximum size in bytes of the precomputed or true outputs for one decoder
SAMPLE = 4096  # maximum number of grid points at which outputs are computed
PROBES = 4  # number of points at which the page compares its outputs with torch's
ALIGNED = 4  # alignment of arrays in bytes
SMALL = 64  # arrays with fewer elements are not quantised


class Blobs:
    """A page's arrays in one buffer; identical arrays are stored only once."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._known: dict[bytes, dict[str, int]] = {}

    def add(self, content: bytes) -> dict[str, int]:
        """Add bytes and return their `start` and `length`."""
        digest = hashlib.sha256(content).digest()
        if digest not in self._known:
            self.content += b"\0" * (-len(self.content) % ALIGNED)
            self._known[digest] = {"start": len(self.content), "length": len(content)}
            self.content += content
        return self._known[digest]

    def program(self, program: Program) -> dict[str, Any]:
        """Add a program's constants to the buffer and return the rest of the program as data for JSON."""
        constants = []
        for number, tensor in program.constants.items():
            array = tensor.numpy()
            if array.dtype == np.float32 and (quantised := _quantised(array)) is not None:
                constants.append({"value": number, "type": "int16", "scale": quantised[1]} | self.add(quantised[0]))
            else:
                constants.append({"value": number, "type": array.dtype.name} | self.add(_bytes(array)))
        stages = [{"name": name, "value": value} for name, value in program.stages.items()]
        return {
            "shapes": program.shapes, "operations": program.operations, "output": program.output, "stages": stages,
            "constants": constants,
        }  # fmt: skip

    def images(self, rows: Tensor) -> dict[str, Any]:
        """Add one row of numbers per grid point, as float16 if they fit into a table, else quantised to 256 steps."""
        low, high = float(rows.min()), float(rows.max())
        if 2 * rows.numel() <= LARGEST_TABLE and max(-low, high) < float(np.finfo(np.float16).max):
            return {"type": "float16", "low": low, "high": high} | self.add(_bytes(rows.half().numpy()))
        steps = ((rows.double() - low) * (255 / (high - low or 1.0))).round().numpy().astype(np.uint8)
        return {"type": "uint8", "low": low, "high": high} | self.add(steps.tobytes())


def _quantised(array: np.ndarray) -> tuple[bytes, float] | None:
    """Return int16 steps and their scale if exact (as for decoders in a results folder); otherwise, return None."""
    scale = np.float32(np.abs(array).max(initial=0) / STEPS)
    if array.size < SMALL or scale == 0:
        return None
    steps = np.rint(array.astype(np.float64) / scale).astype(np.int16)
    return (_bytes(steps), float(scale)) if (steps * scale == array).all() else None


def _bytes(array: np.ndarray) -> bytes:
    """Return an array as little-endian bytes."""
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def measured(decoder: Trained) -> dict[str, np.ndarray]:
    """Return what a page measures of a trained decoder, for a results folder to keep, since it may take seconds."""
    subject = PageDecoder.of(decoder)
    rows, points = _targets(subject)
    if rows is None or subject.grid.size > SAMPLE:
        return {}
    outputs = subject.outputs(subject.grid.points)
    image = _image(subject, outputs, None)
    return judged(subject, outputs, rows, points, positions(subject, rows, points, image), image)


def page_model(
    subject: PageDecoder, blobs: Blobs, image_shape: tuple[int, ...] | None, exports: dict[Any, Exported] | None = None
) -> dict[str, Any]:
    """Add a decoder's arrays to the page and return its remaining data for JSON.

    `exports` are the graphs of known architectures, to which this decoder's is added.
    """
    grid = subject.grid
    sample = torch.arange(grid.size) if grid.size <= SAMPLE else torch.linspace(0, grid.size - 1, SAMPLE).long()
    probes = _probed(subject, sample)
    if subject.measured:
        sample, probes = sample[probes], torch.arange(PROBES)
    outputs = subject.outputs(grid.rows(sample))
    if not bool(outputs.isfinite().all()):
        raise InvalidValue("module", subject.name, "a module whose outputs are finite at every grid point")
    notes = [*subject.notes, *subject.output_notes]
    codes = factor_codes(subject.encoding, grid)
    codes = codes if codes and all(type(code) in KNOWN for code in codes) else None
    program, table = None, None
    try:
        program = _program(subject, blobs, codes is not None, outputs[0].numel(), {} if exports is None else exports)
    except Untranslatable as error:
        table = _table(subject, outputs, blobs, str(error))
        notes.append(f"This decoder cannot run in the page: {error}. Outputs at grid points are precomputed.")
        if subject.is_random:
            notes.append("Outputs are random; the same seed was used at every point.")
    image = _image(subject, outputs, image_shape)
    truth, answers, low, high = _truth(subject, outputs, image, blobs, notes)
    blocks = codes if program is not None else None
    return {
        "name": subject.name, "notes": notes, "program": program, "table": table,
        "probes": None if program is None else _outputs_at(sample[probes], outputs[probes], blobs),
        "codes": blocks and [code.model_dump() for code in blocks],
        "sizes": blocks and [code.size(factor) for code, factor in zip(blocks, grid.factors, strict=True)],
        "mean": blocks and mean_code(blocks, grid, subject.unseen).tolist(),
        "held": bits(subject.held_out, blobs),
        "present": None if subject.present is None else bits(subject.present, blobs),
        "truth": truth, **answers, "background": float(subject.background),
        "image": image,
        "low": low, "high": high,
        "smooth": smooth_factors(subject.encoding, grid) if program is not None else [False] * len(grid.factors),
    }  # fmt: skip


def _program(
    subject: PageDecoder, blobs: Blobs, encoded_by_page: bool, pixels: int, exports: dict[Any, Exported]
) -> dict[str, Any]:
    """Translate the module to a program and add it to the page."""
    numbers = sum(parameter.numel() for parameter in subject.module.parameters())
    if numbers > LARGEST_PROGRAM:
        raise Untranslatable(f"a page may hold at most {LARGEST_PROGRAM:,} parameters, got {numbers:,}")
    rows = subject.grid.rows(torch.tensor([0])).float()
    rows = subject.inputs(rows) if encoded_by_page else rows
    is_plain = encoded_by_page and subject.call == Call()
    module = subject.module if is_plain else Called(subject, encodes=not encoded_by_page).eval()
    prefix = "" if is_plain else "module."
    names = {prefix + path: path for path in _stages(subject)}
    exported = None
    if is_plain and subject.spec is not None:  # runs of one decoder differ in their weights alone
        architecture = subject.spec.decoder, rows.shape, subject.spec.task.image_shape
        exported = exports[architecture] = exports.get(architecture) or export(module, rows[0])
    program = translate(module, rows[0], list(names), exported)
    if subject.is_random:
        raise Untranslatable("outputs are random")
    staged = "stages." if isinstance(subject.module, StagedDecoder) else ""
    program.stages = {names[path].removeprefix(staged): value for path, value in program.stages.items()}
    program.stages.setdefault("output", program.output)
    numbers = sum(tensor.numel() for tensor in program.constants.values())
    if numbers > LARGEST_PROGRAM:
        raise Untranslatable(f"a page may hold at most {LARGEST_PROGRAM:,} constants, got {numbers:,}")
    if math.prod(program.shapes[program.output]) != pixels:
        raise Untranslatable("the module returns several tensors")
    return blobs.program(program)


def _probed(subject: PageDecoder, sample: Tensor) -> Tensor:
    """Return the positions of some of the sampled points, including a held-out one if there is one."""
    held = torch.nonzero(subject.held_out[sample]).flatten()[:1]
    return torch.cat([torch.linspace(0, len(sample) - 1, PROBES - len(held)).long(), held])


def _outputs_at(points: Tensor, outputs: Tensor, blobs: Blobs) -> dict[str, Any]:
    """Return grid points and torch's outputs at these points."""
    return {"points": points.tolist()} | blobs.add(_bytes(outputs.flatten(1).numpy()))


def _stages(subject: PageDecoder) -> list[str]:
    """Return the paths of the submodules whose outputs the page shows."""
    if isinstance(subject.module, StagedDecoder):
        return [f"stages.{name}" for name in subject.module.stage_names[:-1]]
    points = subject.grid.rows(torch.linspace(0, subject.grid.size - 1, min(subject.grid.size, 16)).long())
    try:
        return module_stages(subject.module, partial(subject.call, subject.module), subject.inputs, points).names
    except RecombineError:
        return []  # the page works without stages


def _table(subject: PageDecoder, outputs: Tensor, blobs: Blobs, reason: str) -> dict[str, Any]:
    """Return precomputed outputs at all grid points."""
    size = subject.grid.size * outputs[0].numel()
    if size > LARGEST_TABLE:
        allowed = f"a module that runs in the page ({reason}), or a grid with at most {LARGEST_TABLE} output values"
        raise InvalidValue("module", subject.name, f"{allowed} (here {size})")
    whole = outputs if len(outputs) == subject.grid.size else subject.outputs(subject.grid.points)
    return blobs.images(whole.flatten(1))


def _targets(subject: PageDecoder) -> tuple[Tensor | None, Tensor | None]:
    """Return the targets, one row per point, and their points (None: all); None if there are none or too many."""
    if subject.targets is None:
        return None, None
    points = None if subject.present is None else torch.nonzero(subject.present).flatten()
    rows = subject.target_rows(points)
    assert rows is not None
    return rows.cpu().float().reshape(len(rows), -1), points


def _truth(
    subject: PageDecoder, outputs: Tensor, image: tuple[int, int, int], blobs: Blobs, notes: list[str]
) -> tuple[dict[str, Any] | None, dict[str, Any], float, float]:
    """Return the true outputs at all grid points, what they are judged by, and the range of values to display."""
    low, high = float(outputs.min()), float(outputs.max())
    pixels = outputs[0].numel()
    answers: dict[str, Any] = {"trained": None, "errors": None, "places": None, "breaks_at": None}
    if subject.targets is None:
        return None, answers, low, high
    if subject.grid.size * pixels > LARGEST_TABLE:
        notes.append(f"True outputs are not shown: {subject.grid.size} × {pixels} numbers are too many for a page.")
        return None, answers, low, high
    rows, points = _targets(subject)
    assert rows is not None
    if rows.shape[1] != pixels:
        field = "targets" if subject.data is None else "data"
        raise InvalidValue(field, tuple(rows.shape), f"{pixels} numbers for each of {subject.grid.size} grid points")
    answers["trained"] = training_set(subject, blobs, LARGEST_TABLE)
    if answers["trained"] is None:
        notes.append("The nearest training images are not shown: there are too many for a page.")
    bumps = positions(subject, rows, points, image)
    found = subject.measured
    if not found and len(outputs) == subject.grid.size:
        found = judged(subject, outputs, rows, points, bumps, image)
    if "errors" in found:
        answers["errors"] = {"type": "float32"} | blobs.add(_bytes(found["errors"]))
    if "breaks_at" in found:
        assert isinstance(subject.module, StagedDecoder)
        answers["breaks_at"] = subject.module.stage_names[int(found["breaks_at"])]
    if bumps is not None:
        numbers = {"type": "float32"} | blobs.add(_bytes(bumps.true.numpy().astype("f4")))
        placed = bits(torch.from_numpy(found["placed"]), blobs) if "placed" in found else None
        answers["places"] = numbers | {"dark": bumps.dark, "placed": placed}
    if points is not None:
        rows = torch.full((subject.grid.size, pixels), float(rows.min())).index_copy(0, points, rows)
    return blobs.images(rows), answers, float(rows.min()), float(rows.max())


def _image(subject: PageDecoder, outputs: Tensor, image_shape: tuple[int, ...] | None) -> tuple[int, int, int]:
    """Return an image's channels, rows and columns: the requested shape, that of the data or outputs, or a square."""
    pixels, shape = outputs[0].numel(), tuple(outputs.shape[1:])
    data_shape = None if subject.data is None else subject.data.image_shape
    if image_shape is not None:
        if len(image_shape) not in (2, 3) or math.prod(image_shape) != pixels:
            raise InvalidValue("image_shape", image_shape, f"(y, x) or (channel, y, x) of {pixels} numbers")
        shape = tuple(image_shape)
    elif data_shape and outputs.ndim == 2 and math.prod(data_shape) == pixels:
        shape = tuple(data_shape)
    if len(shape) >= 2:
        return math.prod(shape[:-2]), shape[-2], shape[-1]
    side = math.isqrt(pixels)
    return (1, side, side) if side * side == pixels and side > 3 else (1, 1, pixels)
