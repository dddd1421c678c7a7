"""Sections of the report, which explain what the figures show; results are in the captions and verdicts."""

from __future__ import annotations

from recombine.reproduction.figures import Section

SECTIONS = (
    Section(
        "question",
        "The question",
        "A network has to draw a bump (a bright spot), given only its column and its row. In training, it sees every "
        "column and every row, but some pairs never occur. Can it draw those? Remedies change the training: with "
        "stripes, for example, it also sees images of a whole row or a whole column.",
    ),
    Section(
        "fails",
        "Failure to generalize",
        "A decoder is given the two coordinates of a spot, already disentangled, and only has to draw it. It sees "
        "every column and every row in training, but a box of combinations is held out. If it had learnt what a "
        "coordinate means, it would draw the missing pairs as well. The maps show the error for every pair, and the "
        "images show outputs inside the box, for each encoding, for shallow and deep networks, for other shapes and "
        "sizes of the hole, and for the opposite direction, from image to coordinates. An error of 1 is no better "
        "than an empty image.",
        ("fig1", "fig10", "holdouts", "width", "encoder", "conventions"),
        ("C1", "C16", "C26"),
    ),
    Section(
        "instead",
        "What decoders do instead",
        "According to the paper, a network overlays memorised images in the hole: those with the same row and those "
        "with the same column. To test this, its output is compared with the best sum of such images, and with the "
        "sum of its outputs for each coordinate with the other averaged out. The kernel relates the similarity "
        "of two outputs to that of their coordinates: a network that memorises treats two pairs as similar if they "
        "share a coordinate, and as unrelated otherwise.",
        ("fig8",),
        ("C2", "C3", "C14", "C19"),
    ),
    Section(
        "stages",
        "Where it breaks, stage by stage",
        "Coordinates enter a network disentangled and leave it as an image. Three quantities are followed from stage "
        "to stage: how well a linear probe still reads the coordinates; how far the coordinates still move the "
        "activity along separate directions (factorization F); and how much a small step in the coordinates is "
        "stretched (the volume element dv). A hole that is stretched or squeezed shows up as a box in the maps of dv. "
        "The controls show whether networks that compose, that are untrained, or that saw the whole grid look the "
        "same. Only if they differ can one of these quantities explain the failure. Whether factorization is its cause "
        "is tested by penalising or rewarding its loss.",
        ("fig2", "fig5", "fig11", "fig12", "fig13", "fig14", "controls", "causal"),
        ("C4", "C5", "C6", "C17", "C20", "C36"),
    ),
    Section(
        "numbers",
        "Which metrics predict failure",
        "A metric that explains composition should separate composing from failing networks without using the held-out "
        "images, and should do so for architectures that were not used to select it. All candidates are ranked by how "
        "well they do this: 0.5 is chance, 1 is perfect. The best, with a threshold fixed in advance, then predict "
        "which networks compose in settings that are new to them.",
        ("markers", "prospective"),
        ("C21", "C35"),
    ),
    Section(
        "architecture",
        "Architectural fixes",
        "The first remedy forces each coordinate to be rendered as an image before anything is combined: every value "
        "has an embedding that is an image, and penalties push these images to be simple (low rank) and equal in "
        "variance. The figures show the embeddings, the volume element, and which penalty matters. A decoder that "
        "computes each pixel from the code and the pixel's position, shown for comparison, is forced to render "
        "without any penalty. A ladder leads from one to the other and shows which of its steps matters.",
        ("fig3", "fig6", "attention", "ladder"),
        ("C7", "C8", "C9", "C25", "C37"),
    ),
    Section(
        "data",
        "Fixes through training data",
        "The second remedy leaves the network unchanged. It adds images of a single coordinate: a vertical stripe for "
        "a column, a horizontal one for a row, with the other coordinate absent. There are only two stripes for every "
        "pixel along a side, and a few spots show what a crossing looks like. The figures compare stripes and a few "
        "spots with spots alone, and show what single neurons respond to.",
        ("fig4", "fig7", "fig15"),
        ("C10", "C12", "C13", "C22", "C23", "C24"),
    ),
    Section(
        "scaling",
        "How much data is needed",
        "How many images does a network need before nine out of ten held-out spots are in place, and how does that "
        "number grow with image size? On these axes, a straight line is a power law; its slope is the exponent. Each "
        "protocol is one way to choose the training images and the length of training.",
        ("threshold",),
        ("C11",),
    ),
    Section(
        "rotation",
        "Rotation task",
        "Here the factor is an angle: a digit is rotated, and a range of angles is left out. The figure shows the "
        "error along the circle, how the activity of each stage changes along it, and whether the network draws the "
        "digit at that angle in the gap, or a blend of the gap's two edges.",
        ("fig9",),
        ("C15",),
    ),
    Section(
        "theory",
        "Theory",
        "A network composes if its output is a short sum of products in which every factor has its own function. This "
        "can be counted in the kernel of its outputs, and each stage can be tested for a separate block of directions "
        "per factor. "
        "Kernel regimes are the same idea applied to similarities between outputs.",
        ("theory", "regimes"),
        ("C18", "C27", "C28", "C29"),
    ),
    Section(
        "factors",
        "More factors",
        "Two factors are the smallest case. Here the question and the remedies are the same, with three to five.",
        ("factors",),
        ("C31", "C32", "C33", "C34"),
    ),
)
