"""Which stages a module has: wrappers opened, patterns, rows in any dimension, and what was left out."""

from functools import partial

import pytest
import torch
from torch import nn

import recombine
from recombine.errors import InvalidValue

diagnose = partial(recombine.diagnose, metrics=["features", "metric", "volume", "factorization"])
"""The fewest numbers in which a difference shows."""
GRID = "x=0:3,y=0:3"


def stages(module, **fields):
    return list(diagnose(module, GRID, encode="bump", **fields)["stage"].values)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.wide, self.act, self.narrow = (
            nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)
        )  # fmt: skip

    def forward(self, hidden):
        return hidden + self.narrow(self.act(self.wide(self.norm(hidden))))


class Trunk(nn.Module):
    """Blocks in a list, and a part that is never used."""

    def __init__(self, size, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block(size) for _ in range(depth))
        self.head = nn.Linear(size, size)
        self.unused = nn.Linear(size, size)

    def forward(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


class Wrapped(nn.Module):
    """A lift and a wrapper, as anyone adapts a public model."""

    def __init__(self, inner):
        super().__init__()
        self.lift, self.inner = nn.Linear(8, 6), inner

    def forward(self, codes):
        return self.inner(self.lift(codes))


class Methods(nn.Module):
    """Encoder and decoder that never run as modules of their own."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(Block(6), Block(6)), nn.Sequential(Block(6), Block(6))

    def forward(self, hidden):
        for part in (*self.encoder, *self.decoder):
            hidden = part(hidden)
        return hidden.tanh()


def test_wrappers_are_opened():
    torch.manual_seed(0)
    result = diagnose(Wrapped(Trunk(6, 3)), GRID, encode="bump")
    assert list(result["stage"].values) == ["input", "lift", *(f"inner.blocks.{k}" for k in range(3)), "output"]
    assert "not run: inner.unused" in result.notes
    blocks = [f"inner.{half}.{k}" for half in ("encoder", "decoder") for k in range(2)]
    assert stages(Wrapped(Methods())) == ["input", "lift", *blocks, "output"]


def test_a_lone_part_is_opened_however_small():
    small = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))
    assert stages(nn.DataParallel(small)) == ["input", "module.0", "module.1", "output"]
    assert stages(nn.Sequential(nn.Sequential(nn.Linear(8, 4), nn.Tanh()))) == ["input", "0.0", "output"]
    assert stages(nn.Sequential(nn.Linear(8, 8), small)) == ["input", "0", "1.0", "1.1", "output"]


def test_nobody_gets_a_hundred_stages():
    deep = Wrapped(Trunk(6, 40))
    result = diagnose(deep, GRID, encode="bump")
    kept = list(result["stage"].values)
    assert len(kept) == 25
    assert kept[:3] == ["input", "lift", "inner.blocks.0"]
    assert kept[-2:] == ["inner.blocks.38", "output"]
    assert any("left out to have at most 24 stages" in note and "and 12 more" in note for note in result.notes)
    assert len(stages(deep, stages=["inner.blocks.*"])) == 42


def test_patterns():
    module = Wrapped(Trunk(6, 2))
    assert stages(module, stages=["inner.*"]) == ["input", "inner.blocks.0", "inner.blocks.1", "inner.head", "output"]
    assert stages(module, stages="inner.blocks.?") == ["input", "inner.blocks.0", "inner.blocks.1", "output"]
    assert stages(module, stages=["**.act", "lift"]) == [
        "input", "lift", "inner.blocks.0.act", "inner.blocks.1.act", "output",
    ]  # fmt: skip
    assert stages(module, stages=["inner", "inner"]) == ["input", "inner", "output"]
    for pattern in ("outer.*", "inner.unused*", "*.unused"):
        with pytest.raises(InvalidValue, match=r"^stages"):
            stages(module, stages=[pattern])


class SequenceFirst(nn.Module):
    """Tokens before rows, as torch's transformers are by default."""

    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(8, 12)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False)
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, codes):
        tokens = self.encoder(self.lift(codes).view(len(codes), 3, 4).transpose(0, 1))
        return self.attention(tokens, tokens, tokens)


class RowsFirst(SequenceFirst):
    def forward(self, codes):
        mixed, weights = super().forward(codes)
        return mixed.transpose(0, 1), weights


def test_sequence_first_stages_are_recognised():
    torch.manual_seed(0)
    module = SequenceFirst()
    result = diagnose(module, GRID, encode="bump", stages=["lift", "encoder.layers.*", "encoder"])
    assert list(result["stage"].values) == [
        "input",
        "lift",
        "encoder.layers.0",
        "encoder.layers.1",
        "encoder",
        "output",
    ]
    assert result["features"].values.tolist() == [8, 12, 12, 12, 12, 12]
    assert result.attrs["metric"] == "exact"
    assert [note for note in result.notes if "choose with output=" not in note] == []  # attention returns a tuple
    other = RowsFirst()
    other.load_state_dict(module.state_dict())
    rows_first = diagnose(other, GRID, encode="bump", stages=[])
    assert abs(rows_first["metric"].sel(stage="output") - result["metric"].sel(stage="output")).max() < 1e-5
    assert "encoder.layers.0.linear1" in stages(module) or "encoder.layers.0" in stages(module)


class Named(nn.Module):
    """A part called output that has its rows elsewhere than the output, and one part under two names."""

    def __init__(self):
        super().__init__()
        self.input, self.output = nn.Linear(8, 6), nn.MultiheadAttention(3, 1)
        self.layers = nn.ModuleList([self.input, nn.Tanh()])

    def forward(self, codes):
        tokens = self.layers[1](self.layers[0](codes)).view(len(codes), 2, 3).transpose(0, 1)
        return self.output(tokens, tokens, tokens)[0].sin().transpose(0, 1)


def test_names_of_ours_and_parts_with_two_names():
    assert stages(Named()) == ["input", "module.input", "layers.1", "module.output", "output"]
    assert stages(Named(), stages=["layers.*"]) == ["input", "layers.0", "layers.1", "output"]
    assert stages(Named(), stages=["layers.0"]) == ["input", "layers.0", "output"]


class Folded(nn.Module):
    """Two windows a row, folded into the batch; and a table that has no row an input."""

    def __init__(self):
        super().__init__()
        self.windows, self.table, self.whole = nn.Linear(4, 3), nn.Embedding(5, 6), nn.Identity()

    def forward(self, codes):
        windows = self.windows(codes.view(-1, 4)).view(len(codes), 6)
        self.whole((codes > 0.5).long())
        return self.windows(torch.cat([windows + self.table(torch.arange(5)).mean(0)] * 2, 1)[:, :4]).sin()


def test_folded_rows_and_what_is_left_out():
    result = diagnose(Folded(), GRID, encode="bump")
    assert list(result["stage"].values) == ["input", "windows", "output"]
    assert int(result["features"].sel(stage="windows")) == 6
    assert "left out, since they do not return one floating-point row per input row: table, whole" in result.notes
    assert "called more than once, measured at the first call: windows" in result.notes
    assert "note: left out" in result.summary()
    with pytest.raises(InvalidValue, match=r"^stages"):
        diagnose(Folded(), GRID, encode="bump", stages=["table"])


def test_lazy_layers_are_left_for_their_owner():
    module = nn.Sequential(nn.Linear(8, 4), nn.LazyLinear(3), nn.LazyBatchNorm1d())
    with pytest.raises(InvalidValue, match=r"^module"):
        diagnose(module, GRID, encode="bump")
    assert module[1].has_uninitialized_params()
