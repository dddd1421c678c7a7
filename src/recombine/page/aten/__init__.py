"""Core ATen to operations of a program: one short function for each family.

A translator is given the program and the call, whose arguments have the names of ATen's schema: an argument that
depends on the input is a `Live` value, all others are tensors and numbers of torch.
"""

from recombine.page.aten import moving, pointwise, products, rows
from recombine.page.aten.calls import TRANSLATORS, Call, Live, Untranslatable

__all__ = ["TRANSLATORS", "Call", "Live", "Untranslatable", "moving", "pointwise", "products", "rows"]
