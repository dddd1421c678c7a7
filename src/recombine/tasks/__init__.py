"""Tasks: factor values to images, with encoding, hold-out and training set."""

from recombine.tasks.array import ArrayTask
from recombine.tasks.base import TASKS, AnyTask, Examples, Task
from recombine.tasks.bump import BumpTask
from recombine.tasks.bumps import BumpsTask
from recombine.tasks.rotation import RotationTask
from recombine.tasks.sprites import BallsTask, SpriteTask
from recombine.tasks.training_sets import TRAINING_RULES, Draws, Each, Percent, Pick, TrainingRule

__all__ = [
    "TASKS",
    "TRAINING_RULES",
    "AnyTask",
    "ArrayTask",
    "BallsTask",
    "BumpTask",
    "BumpsTask",
    "Draws",
    "Each",
    "Examples",
    "Percent",
    "Pick",
    "RotationTask",
    "SpriteTask",
    "Task",
    "TrainingRule",
]
