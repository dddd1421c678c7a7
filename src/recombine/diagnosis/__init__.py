"""`diagnose`: the paper's measurements on a user's module, a trained run or a checkpoint."""

from recombine.diagnosis.callbacks import DiagnosisCallback
from recombine.diagnosis.diagnosing import diagnose
from recombine.diagnosis.result import Diagnosis

__all__ = ["Diagnosis", "DiagnosisCallback", "diagnose"]
