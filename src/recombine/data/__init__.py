"""User-supplied images with known factors: file readers, and the grid spanned by the factors."""

from recombine.data.images import LabelledImages, open_images, with_factors
from recombine.data.sources import Arrangement, Coverage, arranged, bins_text, factor_of, parse_bins
