"""recombine: will a decoder compose factors it has never seen together, and where does factorization break?

>>> import recombine as rc
>>> specs = rc.RunSpec(task=rc.BumpTask(encoding="bump"), decoder=rc.CNN(width=16, depth=3)).seeds(range(4))
>>> runs = rc.train(specs)
>>> for row in rc.summarize(runs): print(row.label, row.scores["ood_over_blank"].mean)

Names are imported when first used, so that `import recombine` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES: dict[str, tuple[str, ...]] = {
    "recombine.specs": ("RunSpec", "Recipe"),
    "recombine.factors": ("Factor", "FactorGrid"),
    "recombine.encodings": ("ENCODINGS", "Bump", "Encoding", "OneHot", "Polar", "Positional", "Ramp", "Rate"),
    "recombine.holdouts": (
        "HOLDOUTS", "Center", "Corner", "Cross", "Ell", "Holdout", "Mask", "Nothing", "Scattered",
    ),
    "recombine.tasks": (
        "TASKS", "BumpTask", "Draws", "Each", "Percent", "Pick", "RotationTask", "Task",
        "TRAINING_RULES",
    ),
    "recombine.decoders": (
        "DECODERS", "CNN", "ConvEncoder", "CoordinateMLP", "DecoderSpec", "LowRank", "LowRankEmbedding", "MLP",
        "StagedDecoder", "Transformer",
    ),
    "recombine.training": ("Ensemble", "State", "evaluate", "fit", "scores"),
    "recombine.store": ("Run", "Store", "Summary", "summarize"),
    "recombine.sweep": ("Progress", "train"),
    "recombine.papers.forced_rendering": ("PRESETS", "STUDIES", "Preset"),
    "recombine.reproduction.study": ("Study",),
    "recombine.reproduction.results": ("Results",),
    "recombine.reproduction.reproduce": ("reproduce",),
    "recombine.diagnosis": ("Diagnosis", "diagnose"),
    "recombine.errors": ("DeviceError", "InvalidValue", "RecombineError", "StoreError"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:
    from recombine.decoders import *  # noqa: F403
    from recombine.encodings import *  # noqa: F403
    from recombine.errors import *  # noqa: F403
    from recombine.factors import *  # noqa: F403
    from recombine.holdouts import *  # noqa: F403
    from recombine.specs import *  # noqa: F403
    from recombine.store import *  # noqa: F403
    from recombine.sweep import *  # noqa: F403
    from recombine.tasks import *  # noqa: F403
    from recombine.training import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'recombine' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
