"""Hold-outs: which combinations of factor values are kept from training (§3.1 of the paper).

A hold-out gives a boolean mask over the factor grid, True where held out. Conventions, stated here and nowhere else:

- bounds are integer positions (0 … count − 1) and **inclusive at both ends**: `center:6:22` holds out 6, 7, … 22;
- a bound is one number for all factors, or one for each (`center:6,6,1:22,22,2`);
- a hold-out is about all factors, or about those it names (`center:6:22:factors=x,y`): then bounds are theirs, in the
  order named, and the others are free: a held-out combination of the named ones is held out with all their values;
- a real-valued combination is held out when the nearest grid point is;
- a bound left out follows the grid's size, in the proportions of the paper, and is written into the spec as a number;
- every single value of every factor must stay in training, or the task must say `allow_unseen`.

Known answer: the centred box of the paper holds out 17 × 17 = 289 of 28 × 28 = 784 combinations and keeps 495.

`Holdout.summary(grid)` says how many combinations are kept and held out, and which single values are never seen.
"""

from recombine.holdouts.base import HOLDOUTS, AnyHoldout, Holdout, HoldoutSummary, Pattern, SomeFactors
from recombine.holdouts.points import Mask, Scattered
from recombine.holdouts.shapes import Center, Corner, Cross, Diagonal, Ell, LShaped, Nothing, Orthogonal
