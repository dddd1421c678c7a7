"""Remedies: what may make a decoder compose."""

from recombine.remedies.attention import CrossAttentionDecoder, Interaction
from recombine.remedies.base import REMEDIES, AnyPenalty, Penalty, Remedy
from recombine.remedies.consistency import Consistency, Mixup
from recombine.remedies.contrast import Contrast, ExactContrast, compositional_contrast, squared_contrast
from recombine.remedies.hessian import Hessian, hessian_penalty
from recombine.remedies.hypernetwork import Hypernetwork, HypernetworkDecoder
from recombine.remedies.jacobian import JacobianL1, OrthogonalJacobian, jacobian_l1, orthogonal_jacobian
from recombine.remedies.paper import (
    Dropout,
    DropoutDecoder,
    Entropy,
    Isolated,
    LowRankEmbeddings,
    Variance,
    WeightDecay,
    Wider,
)
from recombine.remedies.per_factor import (
    Additive,
    AdditiveDecoder,
    Multilinear,
    MultilinearDecoder,
    Occlusion,
    OcclusionDecoder,
)
from recombine.remedies.pixelwise import (
    BroadcastDecoder,
    CoordConv,
    CoordConvDecoder,
    Coordinate,
    Implicit,
    ImplicitDecoder,
    SpatialBroadcast,
)
