"""Hold-outs, which specify the combinations of factor values that are held out of training; the others are *kept*.

A hold-out defines a boolean mask over the factor grid, True where held out. Conventions, stated only here:

- bounds are integer positions (0 … count − 1) and **inclusive at both ends**: `center:6:22` holds out 6, 7, … 22;
- a bound is either one number for all factors or one number per factor (`center:6,6,1:22,22,2`);
- a hold-out applies to all factors or to named ones (`center:6:22:factors=x,y`), with bounds in that order; a held-out
  combination of the named factors is held out at every value of the others;
- a real-valued combination is held out if the nearest grid point is;
- bounds not given are computed from the grid's size and stored in the spec;
- `where` holds out by value instead (`x>=8,shape==heart`);
- every value of every factor must stay in training, unless the task sets `allow_unseen`;
- a hold-out other than `none` must hold out at least one combination.

Known answer: the default centred box holds out 17 × 17 = 289 of 28 × 28 = 784 combinations and keeps 495.
"""

from recombine.holdouts.base import HOLDOUTS, AnyHoldout, Holdout, HoldoutSummary, Pattern, SomeFactors
from recombine.holdouts.points import Mask, Scattered
from recombine.holdouts.shapes import (
    Center,
    Corner,
    Cross,
    Diagonal,
    Ell,
    LShaped,
    Nothing,
    Orthogonal,
    Orthotopic,
    axes_of,
)
from recombine.holdouts.where import Where
