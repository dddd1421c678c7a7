"""Decoders as people write them, after public designs: none uses anything of this package."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.GroupNorm(4, cout), nn.SiLU(),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.GroupNorm(4, cout), nn.SiLU(),
        )  # fmt: skip

    def forward(self, x):
        return self.block(x)


class UNet(nn.Module):
    """A conditional U-Net: factor maps in, pooled, upsampled, with skips."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Linear(32, 3 * 16 * 16))
        self.down1, self.down2, self.mid = DoubleConv(3, 8), DoubleConv(8, 16), DoubleConv(16, 16)
        self.pool = nn.MaxPool2d(2)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.dec2, self.dec1 = DoubleConv(32, 8), DoubleConv(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, z):
        x = self.embed(z).view(-1, 3, 16, 16)
        d1 = self.down1(x)
        d2 = self.down2(self.pool(d1))
        m = self.mid(F.avg_pool2d(d2, 2))
        u2 = self.dec2(torch.cat([self.up1(m), d2], dim=1))
        u1 = self.dec1(torch.cat([F.interpolate(u2, scale_factor=2, mode="nearest"), d1], dim=1))
        return torch.sigmoid(self.out(u1))


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=64):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class PatchTransformer(nn.Module):
    """Learnt queries that attend to factor tokens (`nn.Transformer`), each becoming a patch of the image."""

    def __init__(self, d_model=32, patches=16, patch=3):
        super().__init__()
        self.values = nn.Embedding(28, d_model)
        self.queries = nn.Parameter(torch.randn(patches, d_model))
        self.position = PositionalEncoding(d_model)
        self.transformer = nn.Transformer(
            d_model, nhead=4, num_encoder_layers=1, num_decoder_layers=2, dim_feedforward=48, batch_first=True
        )
        self.head = nn.Linear(d_model, patch * patch)
        self.grid, self.patch = math.isqrt(patches), patch

    def forward(self, factors):
        tokens = self.values(factors.round().long().clamp(0, 27))
        queries = self.position(self.queries.expand(factors.shape[0], -1, -1))
        patches = self.head(self.transformer(tokens, queries))
        patches = patches.reshape(-1, self.grid, self.grid, self.patch, self.patch)
        return torch.einsum("bhwpq->bhpwq", patches).reshape(-1, self.grid * self.patch, self.grid * self.patch)


class ResBlockUp(nn.Module):
    """A residual block that upsamples, as GAN generators have it."""

    def __init__(self, cin, cout):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(cin), nn.BatchNorm2d(cout)
        self.conv1 = nn.Conv2d(cin, cout * 4, 3, padding=1, padding_mode="reflect")
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=2, dilation=2, groups=2)
        self.shortcut = nn.Conv2d(cin, cout, 1)
        self.act = nn.PReLU(cout)

    def forward(self, x):
        h = F.pixel_shuffle(self.conv1(F.elu(self.norm1(x))), 2)
        h = self.conv2(self.act(self.norm2(h)))
        return h + self.shortcut(F.interpolate(x, scale_factor=2))


class ResNetGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 16 * 4 * 4)
        self.blocks = nn.ModuleList([ResBlockUp(16, 12), ResBlockUp(12, 8)])
        self.norm = nn.LayerNorm([8, 16, 16])
        self.to_rgb = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, z):
        x = self.fc(z / 28).unflatten(1, (16, 4, 4))
        for block in self.blocks:
            x = block(x)
        return {"images": F.softplus(self.to_rgb(self.norm(x)))}


FOREIGN = {module.__name__: module for module in (UNet, PatchTransformer, ResNetGenerator)}


def foreign(name):
    """One of them, with statistics of its norms as after some training, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = FOREIGN[name]()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0, 0.3)
                part.running_var.uniform_(0.5, 2)
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias, 0, 0.2)
    return module.eval()
