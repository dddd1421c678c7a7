"""`diagnose`: apply the paper's metrics to a user's module, a stored run or a checkpoint."""

from recombine.diagnosis.callbacks import DiagnosisCallback
from recombine.diagnosis.diagnosing import diagnose
from recombine.diagnosis.result import Diagnosis
