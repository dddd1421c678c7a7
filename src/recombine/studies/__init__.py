"""Studies: one file per question of the paper, in the order in which a report tells them."""

from recombine.studies.base import STUDIES, Arm, Study, Trials
from recombine.studies.presets import PRESETS, Preset, preset_named

# Importing a study registers it.
from recombine.studies.encodings import EncodingStudy  # isort: skip
from recombine.studies.superposition import SuperpositionStudy  # isort: skip
from recombine.studies.depth import DepthStudy  # isort: skip
from recombine.studies.mlp import MLPStudy  # isort: skip
from recombine.studies.penalties import PenaltyStudy  # isort: skip
from recombine.studies.stripes import StripeStudy  # isort: skip
from recombine.studies.threshold import ThresholdStudy  # isort: skip
from recombine.studies.tuning import TuningStudy  # isort: skip
from recombine.studies.regimes import RegimeStudy  # isort: skip
from recombine.studies.rotation import RotationStudy  # isort: skip
from recombine.studies.encoder import EncoderStudy  # isort: skip
from recombine.studies.attention import AttentionStudy  # isort: skip
from recombine.studies.holdout_shapes import HoldoutStudy  # isort: skip
from recombine.studies.encoding_width import EncodingWidthStudy  # isort: skip

__all__ = [
    "PRESETS",
    "STUDIES",
    "Arm",
    "AttentionStudy",
    "DepthStudy",
    "EncoderStudy",
    "EncodingStudy",
    "EncodingWidthStudy",
    "HoldoutStudy",
    "MLPStudy",
    "PenaltyStudy",
    "Preset",
    "RegimeStudy",
    "RotationStudy",
    "StripeStudy",
    "Study",
    "SuperpositionStudy",
    "ThresholdStudy",
    "Trials",
    "TuningStudy",
    "preset_named",
]
