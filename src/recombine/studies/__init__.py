"""Studies: one file per question of the paper."""

from recombine.studies.base import PRESETS, STUDIES, Study, chosen
from recombine.studies.encodings import EncodingStudy

__all__ = ["PRESETS", "STUDIES", "EncodingStudy", "Study", "chosen"]
