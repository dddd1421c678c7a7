"""Tasks: images rendered from factor values, with an encoding, a hold-out and a training set."""

from recombine.tasks.array import ArrayTask
from recombine.tasks.base import TASKS, AnyTask, Examples, Task
from recombine.tasks.bumps import BumpsTask, BumpTask
from recombine.tasks.rotation import RotationTask
from recombine.tasks.sprites import BallsTask, SpriteTask
from recombine.tasks.training_sets import TRAINING_RULES, Draws, Each, Percent, Pick, TrainingRule
