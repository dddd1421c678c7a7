"""Every Triton kernel compiles for a GPU, without one: what the interpreter forgives, the compiler may not."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

CHECK = """
import itertools, sys
import warnings
warnings.simplefilter("ignore")
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from recombine.kernels.triton import adamw, attention, convolution, distance, narrow, readout, tokens, vectors

HALF = {"x", "w", "gate", "y", "z", "along", "back"}
FULL = {"bias", "sums", "part", "kernel", "slopes", "gradient", "weights", "mean", "square", "decay", "stride", "root",
        "v", "s", "spread", "pull", "strengths", "goal", "absolute"}
NUMBERS = {"mean_share", "beta2", "square_share", "epsilon", "scale"}
OTHER = {"active": "*i1", **dict.fromkeys(NUMBERS, "fp32")}

def choices():
    # what two switches may be, or both off and both on
    return itertools.product((False, True), repeat=2) if sys.argv[1] == "all" else ((False, False), (True, True))

def kind(name, fixed, half, full):
    if name in fixed:
        return "constexpr"
    half, full = (HALF - full) | half, (FULL - half) | full
    return "*bf16" if name in half else "*fp32" if name in full else OTHER.get(name, "i32")

def compiled(kernel, half=frozenset(), full=frozenset(), **fixed):
    names = kernel.arg_names
    source = ASTSource(
        kernel, {name: kind(name, fixed, half, full) for name in names},
        {(names.index(name),): value for name, value in fixed.items()}, {},
    )
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})

square = {"CI": 64, "CO": 64, "PRECISION": "tf32", "STAGES": 3}
tall = {"ROWS": 128, "EDGE": 128}
for up, back in choices():
    flags = {"UP": up, "BACK": back, "RELU": True, "MAP": up, "WIDE": True}
    compiled(convolution._gathered_product, **square, **tall, **flags, DEEP=64)
compiled(convolution._gathered_product, **(square | {"CI": 16, "CO": 16}), **tall, DEEP=16, UP=False, BACK=False,
         RELU=False, MAP=False, WIDE=False)
for up in (False, True):
    compiled(convolution._weight_product, **square, ROWS=32, UP=up)
compiled(convolution._collect, SPLITS=4, TAPS=9, CI=64, CO=64)
compiled(convolution._lay_out, TAPS=16, CI=64, CO=64, BLOCK=16)
compiled(readout._readout, C=64, ROWS=32)
compiled(readout._spread, C=64, ROWS=32, EDGE=128)
compiled(readout._weights, C=64, ROWS=32, PRECISION="tf32", STAGES=2)
for back in (False, True):
    compiled(narrow._convolved, CI=2, CO=2, WIDE=2, BLOCK=512, BACK=back)
compiled(narrow._weights, CI=2, CO=1, WIDE=1, BLOCK=256)
compiled(narrow._weights, CI=16, CO=16, WIDE=16, BLOCK=16)
tile = {"VECTORS": 32, "WIDE": 32}
for scaled, unit in choices():
    for kernel in (vectors._scaled, vectors._scaled_back):
        compiled(kernel, SCALED=scaled, UNIT=unit, full={"y", "z"}, **tile)
for kernel in (vectors._entropy, vectors._entropy_back):
    compiled(kernel, **tile)
for kernel in (distance._means, distance._means_back):
    compiled(kernel, BLOCK=1024, half={"slopes"})
    compiled(kernel, BLOCK=1024, full={"x"})
compiled(adamw._update, BLOCK=1024)
rows, rough = {"TALL": 32, "WIDE": 128}, {"slope", "h", "up", "below", "total", "bias", "gain", "shift"}
for slopes in (False, True):
    for kernel in (tokens._activated, tokens._activated_back):
        compiled(kernel, PRELU=slopes, half=rough, full={"slope_part"}, **rows)
for kernel in (tokens._normed, tokens._normed_back):
    compiled(kernel, half=rough, full={"gain_part", "shift_part"}, **rows)
heads = {"PRECISION": "tf32", "TALL": 128, "WIDE": 64, "DEEP": 16}
for kernel in (attention._attended, attention._queries_back, attention._keys_back):
    compiled(kernel, half={"mixed", "outputs", "up", "below"}, full={"logs", "products"}, **heads)
print("compiled")
"""


@pytest.mark.slow
@pytest.mark.parametrize("variants", ["some", "all"])
def test_kernels_compile_for_a_gpu(tmp_path, variants):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    words = [sys.executable, "-c", CHECK, variants]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout.strip() == "compiled", done.stderr[-3000:]
