"""The small language executed by the page's script: values, constants, and a list of operations.

A program maps one row of inputs to one row of outputs. *Values* are dense float32 arrays in row-major order, numbered
from 0 (the input). Each value has a shape, and some are constants. Each *operation* writes one value:

========== ============================== =================================================================
name       inputs                         settings
========== ============================== =================================================================
view       x                              the same elements with a different shape
map        x                              `f`, and its parameters `a` and `b`: `MAPS` in script/operations.js
zip        x, y (broadcast)               `f`: `ZIPS` in script/operations.js
where      condition, x, y (broadcast)
matmul     (batch, m, k), (batch, k, n)   one batch may be 1; optionally a bias of n numbers
conv       x, weight, optionally bias     `stride`, `padding`, `dilation`, `extra`, `groups`, `transposed`
maxpool    x                              `kernel`, `stride`, `padding`, `dilation`
move       any number of x                `fill`, and `pieces`: boxes copied, one after another, into the output
take       x, integers                    out[i] = x[integers[i]]
embedding  table, integers                rows of the table
reduce     (row, n)                       `f`: sum, mean, max, min, prod, any, all, norm or var (with `correction`)
softmax    (row, n)                       `log`: whether to return logarithms
normalize  (row, n)                       `epsilon`: rows are shifted to mean 0 and scaled to variance 1
========== ============================== =================================================================

`extra` is torch's output padding.
A piece of `move` is `{"of": which input, "from": offset, "to": offset, "shape": …, "strides": of output and input}`;
`zip` and `where` have `axes`: the shape of their output, and the strides of output and inputs. Conditions are 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass
class Program:
    """A program of values, constants and operations; `stages` maps names to the values to show."""

    shapes: list[Shape]
    constants: dict[int, Tensor] = field(default_factory=dict)
    operations: list[dict[str, Any]] = field(default_factory=list)
    """Operations, each with a `name`, `inputs`, an `output` and settings."""
    output: int = 0
    stages: dict[str, int] = field(default_factory=dict)

    def constant(self, tensor: Tensor) -> int:
        """Add a constant; integers become int32, everything else float32."""
        whole = tensor.dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
        number = self._value(tuple(tensor.shape))
        self.constants[number] = tensor.detach().cpu().to(torch.int32 if whole else torch.float32).contiguous()
        return number

    def emit(self, name: str, inputs: Sequence[int], shape: Sequence[int], **settings: Any) -> int:
        """Add an operation and return the number of the value that it writes."""
        number = self._value(tuple(shape))
        if name in ("zip", "where"):
            arrays = [torch.empty(self.shapes[value], device="meta") for value in (number, *inputs)]
            settings["axes"] = merged(shape, *(array.expand(tuple(shape)).stride() for array in arrays))
        self.operations.append({"name": name, "inputs": tuple(inputs), "output": number, **settings})
        return number

    def view(self, value: int, shape: Sequence[int]) -> int:
        """Return the value with a different shape."""
        shape = tuple(shape)
        assert math.prod(shape) == math.prod(self.shapes[value])
        if shape == self.shapes[value]:
            return value
        if value in self.constants:
            return self.constant(self.constants[value].reshape(shape))
        return self.emit("view", [value], shape)

    def _value(self, shape: Shape) -> int:
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def pruned(self) -> Program:
        """Return the program without the operations and constants on which no output or stage depends."""
        needed = {self.output, *self.stages.values()}
        kept = []
        for operation in reversed(self.operations):
            if operation["output"] in needed:
                needed.update(operation["inputs"])
                kept.append(operation)
        constants = {number: tensor for number, tensor in self.constants.items() if number in needed}
        return replace(self, operations=kept[::-1], constants=constants)


def merged(shape: Sequence[int], *strides: Sequence[int]) -> dict[str, Any]:
    """Merge the axes of a box in several arrays as far as the strides allow."""
    axes: list[list[int]] = []
    for count, *steps in zip(shape, *strides, strict=True):
        if axes and axes[-1][1:] == [step * count for step in steps]:
            axes[-1] = [axes[-1][0] * count, *steps]
        elif count != 1:
            axes.append([count, *steps])
    counts, *own = zip(*(axes or [[1] + [0] * len(strides)]), strict=True)
    return {"shape": counts, "strides": own}
