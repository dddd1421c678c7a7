"""Remedies: what may make a decoder compose."""

from recombine.remedies.architectures import (
    Additive,
    CoordConv,
    Coordinate,
    Hypernetwork,
    Implicit,
    Interaction,
    Multilinear,
    Occlusion,
    SpatialBroadcast,
)
from recombine.remedies.base import REMEDIES, AnyPenalty, Penalty, Remedy
from recombine.remedies.consistency import Consistency, Mixup
from recombine.remedies.contrast import Contrast, ExactContrast, compositional_contrast, squared_contrast
from recombine.remedies.cross_term import CrossTerm, cross_term
from recombine.remedies.hessian import Hessian, hessian_penalty
from recombine.remedies.jacobian import JacobianL1, OrthogonalJacobian, jacobian_l1, orthogonal_jacobian
from recombine.remedies.paper import Dropout, Entropy, Isolated, LowRankEmbeddings, Variance, WeightDecay, Wider
