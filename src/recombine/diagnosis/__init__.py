"""The same measurements for anyone's module."""

from recombine.diagnosis.callbacks import DiagnosisCallback
from recombine.diagnosis.diagnosing import diagnose
from recombine.diagnosis.hooks import module_reader
from recombine.diagnosis.result import Diagnosis

__all__ = ["Diagnosis", "DiagnosisCallback", "diagnose", "module_reader"]
