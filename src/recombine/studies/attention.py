"""Do transformers and spatially aware MLPs compose? (extra)

Both read the code beside every pixel's position; only the transformer lets pixels look at each other. Depth studies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from recombine.decoders import CoordinateMLP, DecoderSpec, Transformer
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import answers, base_attributes, grid_variables, keep_first, sample_points, tabulate

if TYPE_CHECKING:
    import xarray


@register
class AttentionStudy(Study):
    """Decoders that know where each pixel is."""

    name: ClassVar[str] = "attention"
    question: ClassVar[str] = "Do decoders that know where each pixel is compose?"

    def arms(self, preset: Preset) -> list[Arm]:
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

    def measure(self, trials: Trials) -> xarray.Dataset:
        def measured(run: Run) -> dict[str, object]:
            return {**run.scores, "drawing": answers(run, sample_points(run.spec), trials.device).numpy()}

        result = tabulate(trials, ("decoder", "depth"), measured, {"drawing": ("sample", "row", "column")})
        spec = next(iter(trials.items()))[1][0].spec
        return keep_first(result, "drawing").drop_vars("mean_drawing").assign(
            place=(("sample", "axis"), sample_points(spec).numpy()), **grid_variables(spec)
        ).assign_attrs({**base_attributes(trials), "size": trials.preset.attention_size})  # fmt: skip
