"""Images of a user's own with the factors that made them: readers, and the grid that the factors span."""

from recombine.data.columns import Arrangement, arranged, factor_of
from recombine.data.images import LabelledImages
from recombine.data.opening import open_images, with_factors

__all__ = ["Arrangement", "LabelledImages", "arranged", "factor_of", "open_images", "with_factors"]
