"""Modules of public libraries, tiny and untrained: their insides become stages, and the result says what was done.

Each is called as its documentation says, behind a linear map from the code of the factor values to its input.
"""

import numpy as np
import pytest
import torch
from torch import nn

import recombine

pytestmark = pytest.mark.slow
GRID = "x=0:3,y=0:3"
CODE = 8
IMAGE = (2, 8, 8)


class Adapter(nn.Module):
    """A linear lift of the code to a shape, then a call of the model."""

    def __init__(self, model, shape, call=lambda model, inputs: model(inputs)):
        super().__init__()
        self.lift, self.model = nn.Linear(CODE, int(np.prod(shape))), model
        self.shape, self.call = shape, call

    def forward(self, codes):
        return self.call(self.model, self.lift(codes).view(len(codes), *self.shape))


def unet():
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=8, in_channels=2, out_channels=1, layers_per_block=1, block_out_channels=(4, 8), norm_num_groups=2,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )  # fmt: skip
    return Adapter(model, IMAGE, lambda model, images: model(images, timestep=3))


def quantised_autoencoder():
    from diffusers import VQModel

    model = VQModel(
        in_channels=2, out_channels=2, down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",),
        block_out_channels=(4,), latent_channels=2, num_vq_embeddings=32, norm_num_groups=2, layers_per_block=1,
    )  # fmt: skip
    nn.init.normal_(model.quantize.embedding.weight, std=0.3)
    return Adapter(model, IMAGE)


def masked_autoencoder():
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    model = ViTMAEForPreTraining(
        ViTMAEConfig(
            hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, image_size=8, patch_size=4,
            num_channels=2, decoder_num_attention_heads=2, decoder_hidden_size=8, decoder_num_hidden_layers=1,
            decoder_intermediate_size=8, mask_ratio=0.5,
        )
    )  # fmt: skip
    return Adapter(model, IMAGE)


def swin():
    from transformers import SwinConfig, SwinModel

    model = SwinModel(
        SwinConfig(
            image_size=8, patch_size=2, num_channels=2, embed_dim=4, depths=[2, 1], num_heads=[1, 2], window_size=2
        )
    )
    return Adapter(model, IMAGE)


EXACT = "exact"
QUANTISES = "no forward-mode derivative"
RANDOM = "outputs are random in evaluation mode"
MODULES = {
    unet: (EXACT, None, ["conv_in", "down_blocks.0", "down_blocks.1", "mid_block", "up_blocks.0", "up_blocks.1"]),
    quantised_autoencoder: (QUANTISES, "sample was measured", ["encoder", "quant_conv", "quantize", "decoder.conv_in"]),
    masked_autoencoder: (EXACT, RANDOM, ["vit.embeddings", "vit.layernorm", "decoder.decoder_embed"]),
    swin: (
        EXACT,
        "last_hidden_state was measured",
        ["embeddings", "encoder.layers.0.blocks.0", "encoder.layers.0.blocks.1", "encoder.layers.1"],
    ),
}


@pytest.mark.parametrize("make", MODULES, ids=lambda make: make.__name__)
def test_the_insides_are_stages_and_nothing_is_silent(make):
    method, note, inside = MODULES[make]
    torch.manual_seed(0)
    module = make()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    result = recombine.diagnose(module, GRID, encode="bump", holdout="center:1:2")
    stages = list(result["stage"].values)
    places = [stages.index(name) for name in ("input", "lift", *(f"model.{part}" for part in inside), "output")]
    assert places == sorted(places)
    if method == EXACT:
        assert result.attrs["metric"] == EXACT
    else:
        assert result.attrs["metric"] == "finite differences"
        assert method in result.attrs["metric_reason"]
        assert result.attrs["metric_reason"] in result.summary()
    assert (len(result.notes) > 0) == (note is not None)
    assert note is None or note in result.summary()
    assert np.isfinite(result["metric"].values).all()
    assert float(result["volume"].sel(stage="output").mean()) > 0
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
