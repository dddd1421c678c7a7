"""Do transformers and spatially aware MLPs compose? (extra)

Both read the code beside every pixel's position; only the transformer lets pixels attend to each other. By depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from recombine.decoders import CoordinateMLP, DecoderSpec, Transformer
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.reproduction.batches import Batch
from recombine.reproduction.measuring import DRAWING, base_attributes, drawings, tabulate, with_positions
from recombine.reproduction.preset import Count, Several
from recombine.reproduction.study import Arm, Study, Trials

if TYPE_CHECKING:
    import xarray


class Settings(BumpPreset):
    """Size, depths and length of training."""

    attention_size: Count = 16
    """N of this study."""
    attention_width: Count = 128
    attention_depths: Several = (2, 3, 4, 5)
    coordinate_depths: Several = (2, 3, 4, 5)
    attention_steps: Count = 1000

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "attention_size": 10, "attention_width": 32, "attention_depths": (2,), "coordinate_depths": (2,),
            "attention_steps": 150,
        }
    }  # fmt: skip


class AttentionStudy(Study[Settings]):
    """Decoders that know where each pixel is."""

    name: ClassVar[str] = "attention"
    question: ClassVar[str] = "Do decoders that know where each pixel is compose?"
    settings: ClassVar[type[Settings]] = Settings

    def arms(self, preset: Settings) -> list[Arm]:
        width, steps = preset.attention_width, preset.attention_steps
        decoders: list[tuple[str, int, DecoderSpec]] = [
            ("transformer", d, Transformer(width=width, depth=d)) for d in preset.attention_depths
        ]
        decoders += [("coordinate MLP", d, CoordinateMLP(width=width, depth=d)) for d in preset.coordinate_depths]
        return [
            Arm(
                (name, depth),
                preset.spec(size=preset.attention_size, decoder=decoder, steps=steps, lr=1e-3),
                extra=True,
            )
            for name, depth, decoder in decoders
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, object]:
            return {**batch.scores, "drawing": drawings(batch)}

        result = tabulate(trials, ("decoder", "depth"), measured, {"drawing": DRAWING})
        attributes = base_attributes(trials, size=trials.preset.attention_size)
        return with_positions(result, trials.first.spec).assign_attrs(attributes)


STUDY = AttentionStudy()
