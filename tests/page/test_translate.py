"""Modules as programs: the script says what torch says, for single layers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from recombine.page import translate
from recombine.page.calls import Untranslatable
from recombine.page.model import Blobs
from recombine.page.moving import box_of
from recombine.page.program import merged
from recombine.page.translate import export
from tests.page.test_script import answers, needs_node


class Calls(nn.Module):
    """A function as a module, with a parameter so that nothing is constant."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.function(x * self.scale)


def image(x):
    return x[:, :48].reshape(-1, 3, 4, 4)


def assigned(blank, x):
    blank[:, 1, 1:] = x[:, :3]
    return blank


LAYERS = {
    "conv1d": lambda x: F.conv1d(x.reshape(-1, 4, 12), torch.arange(24.0).reshape(2, 4, 3) / 9, stride=2, padding=1),
    "depthwise": lambda x: F.conv2d(image(x), torch.arange(27.0).reshape(3, 1, 3, 3) / 9, groups=3, padding=1),
    "strided": lambda x: F.conv2d(image(x), torch.arange(54.0).reshape(2, 3, 3, 3) / 9, stride=2, dilation=1),
    "transposed": lambda x: F.conv_transpose2d(
        image(x), torch.arange(81.0).reshape(3, 3, 3, 3) / 9, stride=2, padding=1, output_padding=1, groups=1
    ),
    "transposed groups": lambda x: F.conv_transpose2d(
        image(x), torch.arange(36.0).reshape(3, 2, 2, 3) / 9, stride=(2, 1), groups=3, dilation=2
    ),
    "bicubic": lambda x: F.interpolate(image(x), size=(7, 5), mode="bicubic"),
    "adaptive": lambda x: F.adaptive_avg_pool2d(image(x), (3, 2)),
    "average with padding": lambda x: F.avg_pool2d(image(x), 3, 2, padding=1),
    "average without": lambda x: F.avg_pool2d(image(x), 3, 2, padding=1, count_include_pad=False),
    "largest": lambda x: F.max_pool2d(image(x), 3, 2, padding=1, dilation=1),
    "circular": lambda x: F.pad(image(x), (1, 2, 2, 1), mode="circular"),
    "reflect": lambda x: F.pad(image(x), (1, 2, 2, 1), mode="reflect"),
    "cropped": lambda x: F.pad(image(x), (-1, 2, 0, -2), value=3.0),
    "instance norm": lambda x: F.instance_norm(image(x)),
    "assigned": lambda x: torch.cat([torch.index_select(x, 1, torch.tensor([3, 0])), x.roll(2, 1)], 1),
    "stack": lambda x: torch.stack([x, x.flip(1)], dim=2).mean(dim=(0, 2)),
    "statistics": lambda x: torch.cat([x.var(1), x.std(1), x.amax(1), x.norm(dim=1), x.logsumexp(1)]),
    "softmax": lambda x: torch.softmax(image(x), dim=1) + torch.log_softmax(image(x), dim=2),
    "attention": lambda x: F.scaled_dot_product_attention(*3 * [x.reshape(-1, 2, 6, 4)], is_causal=True),
    "activations": lambda x: F.mish(x) + F.hardswish(x) + F.selu(x) + F.celu(x, 2.0) + F.softsign(x) + F.relu6(x),
    "comparison": lambda x: torch.where(x > 0.2, x**2, torch.minimum(x, -x)) + (x < 0) * 2 + torch.atan2(x, x + 2),
    "whole numbers": lambda x: (10 * x).long() % 3 + torch.div(x, 0.3, rounding_mode="floor"),
    "assignment": lambda x: assigned(torch.zeros(1, 3, 4), x),
    "einsum": lambda x: torch.einsum("bij,bkj->bik", x.reshape(-1, 6, 8), x.reshape(-1, 6, 8)),
}


@needs_node
def test_layers_are_translated(tmp_path):
    rows = torch.randn(2, 48, generator=torch.Generator().manual_seed(0))
    module = Calls(lambda x: torch.cat([layer(x).flatten().float() for layer in LAYERS.values()])[None])
    sizes = [layer(rows[:1]).numel() for layer in LAYERS.values()]
    right = torch.cat([module(row[None]) for row in rows]).detach()
    blobs = Blobs()
    program = blobs.program(translate(module, rows[0]))
    ours = torch.tensor(answers(tmp_path, [{"program": program, "rows": rows.tolist()}], blobs)[0])
    parts = zip(ours.split(sizes, 1), right.split(sizes, 1), strict=True)
    wrong = [name for name, pair in zip(LAYERS, parts, strict=True) if not torch.allclose(*pair, atol=3e-5, rtol=1e-5)]
    assert wrong == []


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch.fft.rfft(x).abs(), "complex numbers"),
        (lambda x: x + torch.randn_like(x), "random numbers"),
        (lambda x: torch.cumsum(x, 1), "cumsum in Calls"),
        (lambda x: x if x.sum() > 0 else -x, r"values of a tensor in test_translate.py, line \d+: .*x.sum\(\) > 0"),
    ],
)
def test_what_cannot_be_translated_is_named(function, words):
    with pytest.raises(Untranslatable, match=words):
        translate(Calls(function), torch.ones(4))


def test_what_does_not_depend_on_the_input_is_a_constant():
    weight = torch.randn(3, 4)
    program = translate(Calls(lambda x: x @ (weight.T * 2).flip(0)), torch.ones(4))
    assert [operation["name"] for operation in program.operations if operation["name"] != "view"] == ["zip", "matmul"]


def test_stages_are_values_of_the_program():
    module = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 5)), nn.Tanh())
    program = translate(module, torch.zeros(2), ["0", "1", "1.0"])
    assert {name: program.shapes[value] for name, value in program.stages.items()} == {
        "0": (1, 3), "1": (1, 5), "1.0": (1, 3)
    }  # fmt: skip


def test_boxes_are_seen_and_other_places_are_not():
    whole = torch.arange(24).reshape(2, 3, 4)
    assert box_of(whole.permute(2, 0, 1).flip(1)[1:, :, ::2]) == (13, [1, -12, 8])
    assert box_of(whole[:, [0, 2, 1]]) is None
    assert merged([2, 3, 4], [12, 4, 1], [12, 4, 1]) == {"shape": (24,), "strides": [(1,), (1,)]}
    assert merged([2, 3, 4], [12, 4, 1], [0, 1, 0])["shape"] == (2, 3, 4)


def test_modules_that_differ_in_their_weights_alone_share_an_export():
    torch.manual_seed(0)
    first, second = (nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.PReLU()).eval() for _ in range(2))
    second[1].running_mean += 1
    row = torch.ones(3)
    shared, own = translate(second, row, exported=export(first, row)), translate(second, row)
    assert (shared.operations, shared.output) == (own.operations, own.output)
    assert shared.constants.keys() == own.constants.keys()
    assert all(torch.equal(tensor, own.constants[name]) for name, tensor in shared.constants.items())
