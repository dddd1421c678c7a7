"""Encodings: the value of one factor to the activity of its own neurons (§3.1 of the paper).

Each factor is coded by itself, so every encoding is disentangled by construction. One encoding codes all factors, or
each has its own (`mixed`). Codes are differentiable in the value except `onehot`. Population codes work on the
factor's *position* (0 … count − 1), so that any factor can be coded, whatever its values; `rate` is the value itself.
`polar` and `circular` go by the factor's form: an angle has the same code after a full period.

A factor that is **absent** (an isolated-factor example shows only one) has a block of zeros. Only population codes
can say "absent": for `rate` zero is a value like any other.
"""

from recombine.encodings.base import ENCODINGS, AnyEncoding, Encoding
from recombine.encodings.codes import Bump, Circular, OneHot, Polar, Positional, Ramp, Rate
from recombine.encodings.mixed import Mixed

__all__ = [
    "ENCODINGS",
    "AnyEncoding",
    "Bump",
    "Circular",
    "Encoding",
    "Mixed",
    "OneHot",
    "Polar",
    "Positional",
    "Ramp",
    "Rate",
]
