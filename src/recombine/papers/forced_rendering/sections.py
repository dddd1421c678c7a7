"""Parts of the report, in the order of the paper's argument: what each figure shows, in plain words.

Texts say what is drawn and how to read it. What came out is said by the verdicts and captions, which are computed.
"""

from __future__ import annotations

from recombine.reproduction.figures import Section

SECTIONS = (
    Section(
        "question",
        "The question",
        "A network that draws a spot is told its column and its row, and nothing else. Every column and every "
        "row occurs in training; some pairs never do. Can it draw those?",
    ),
    Section(
        "fails",
        "It fails",
        "A decoder is handed the two coordinates of a spot, already taken apart, and has only to draw it. It "
        "sees every column and every row in training, but not every pair: a box of combinations is held out. "
        "If it had learnt what a coordinate means, it would draw the missing pairs too. The maps show the "
        "error at every pair, the pictures what is drawn inside the box, for each way of writing down a "
        "coordinate, for shallow and deep networks, for other shapes and sizes of the hole, and for the other "
        "direction, from image to coordinates. An error of 1 is no better than an empty picture.",
        ("fig1", "fig10", "holdouts", "width", "encoder", "conventions"),
        ("C1", "C16", "C26"),
    ),
    Section(
        "instead",
        "What it does instead",
        "In the hole, says the paper, a network overlays pictures that it has memorised: those that share the "
        "row and those that share the column. To test that, its output for a pair is compared with the sum of "
        "two halves, each what the network draws for one coordinate while the other is averaged away. The "
        "kernel says how alike two outputs are, given how alike their coordinates are: a network that "
        "memorises treats two pairs as alike if they share a coordinate, and as unrelated if they do not.",
        ("fig8",),
        ("C2", "C3", "C14", "C19"),
    ),
    Section(
        "stages",
        "Where it breaks, stage by stage",
        "Coordinates enter a network separated and leave it as an image. In between, three numbers are "
        "followed from stage to stage: how well a linear probe still reads the coordinates; how far the "
        "coordinates still move the activity along separate directions (factorization F); and by how much a "
        "small step in coordinates is stretched (the volume element dv, drawn as a map over all pairs). A "
        "hole that is stretched or squeezed shows up as a box in that map. The controls ask whether the same "
        "is found in networks that do compose, that are untrained, or that saw the whole grid: only if not "
        "can it be the reason of the failure.",
        ("fig2", "fig5", "fig11", "fig12", "fig13", "fig14", "controls"),
        ("C4", "C5", "C6", "C17", "C20"),
    ),
    Section(
        "numbers",
        "Which numbers tell",
        "If a number explains composing, it should tell networks that compose from networks that fail without "
        "looking at the held-out pictures, and do so for architectures that it was not chosen on. All "
        "candidates are ranked by that: 0.5 is a coin, 1 is always right.",
        ("markers",),
        ("C21",),
    ),
    Section(
        "architecture",
        "Fix it by architecture",
        "The first remedy forces each coordinate to be rendered as a picture of its own, before anything is "
        "combined: every value has an embedding that is an image, and penalties push these images to be "
        "simple (low rank) and alike in spread. Shown are the embeddings, the volume element, and which of "
        "the two penalties does the work. A decoder that computes each pixel from the code and the pixel's "
        "own place needs no penalty to be of this kind; it stands beside.",
        ("fig3", "fig6", "attention"),
        ("C7", "C8", "C9", "C25"),
    ),
    Section(
        "data",
        "Fix it by data",
        "The second remedy changes no network. It adds pictures of one coordinate alone: a vertical stripe "
        "for a column, a horizontal one for a row, with the other coordinate absent. There are only two "
        "stripes for every pixel of a side, and a few spots show what a crossing looks like. The figures "
        "compare stripes with a few spots to spots alone, and look at what single neurons respond to.",
        ("fig4", "fig7", "fig15"),
        ("C10", "C12", "C13", "C22", "C23", "C24"),
    ),
    Section(
        "scaling",
        "How much data that takes",
        "How many pictures does a network need until nine of ten held-out spots are in place, and how does "
        "that number grow with the image? A straight line in these axes is a power of the size; its slope is "
        "the exponent. Every protocol is one way of deciding what counts as a training picture and how long "
        "to train.",
        ("threshold",),
        ("C11",),
    ),
    Section(
        "rotation",
        "The same with rotation",
        "Here the factor is an angle, a digit is turned, and a range of angles is left out. Shown are the "
        "error along the circle, how the activity of each stage moves along it, and what is drawn in the gap: "
        "the digit at that angle, or a blend of its two edges.",
        ("fig9",),
        ("C15",),
    ),
    Section(
        "theory",
        "Theory",
        "A network composes if what it draws is a short sum of products, each factor with a function of its "
        "own. That can be counted, pixel by pixel, and each stage can be asked whether it keeps a block of "
        "directions for each factor. The kernel regimes ask the same of how alike outputs are.",
        ("theory", "regimes"),
        ("C18", "C27", "C28", "C29", "C30"),
    ),
    Section(
        "factors",
        "More factors",
        "Two factors are the smallest case. The same question, and the same remedies, with three, four and "
        "five of them.",
        ("factors",),
        ("C31", "C32", "C33", "C34"),
    ),
)
