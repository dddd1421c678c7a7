"""Where inside the network factorization breaks, and whether depth helps.

Tests are on CNNs of the usual depth (4 in the paper preset), bump and rate code; other depths are alternatives. Stages
are the hidden ones and the output.
"""

from __future__ import annotations

from recombine.papers.forced_rendering.controls.differences import less_controls
from recombine.papers.forced_rendering.depth.cases import (
    at_each_stage,
    at_other_depths,
    at_usual_depth,
    networks_of,
    trained_depths,
    with_measure,
)
from recombine.papers.forced_rendering.depth.statistics import (
    factorization_fall,
    factorization_fall_differences,
    factorization_fall_of_means,
    factorization_fall_to,
    late_cross_terms,
    late_held_out_cross_terms,
    late_lost_factorization,
    probe_fall,
    probe_fall_to_output,
    spread_excess,
    spread_excess_at,
    spread_rise,
)
from recombine.papers.forced_rendering.labels import CODES
from recombine.papers.forced_rendering.samples import sample
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, below, effect
from recombine.reproduction.tables import largest_drop, listed_attribute

# -- C4: probes ------------------------------------------------------------------------------------------------------


def probe_cases(data: Data) -> dict[str, Sample]:
    """By code, at the usual depth."""
    return at_usual_depth(data, probe_fall)


def probe_alternatives(data: Data) -> dict[str, Sample]:
    """To the output, and at other depths."""
    return {
        **with_measure(data, "to the output", probe_fall_to_output),
        **at_other_depths(data, probe_fall),
    }


def probe_controls(data: Data) -> dict[str, Sample]:
    """Failing networks less controls."""
    return less_controls(data, probe_fall)


# -- C5: factorization -----------------------------------------------------------------------------------------------


def factorization_cases(data: Data) -> dict[str, Sample]:
    """By code, at the usual depth."""
    return at_usual_depth(data, factorization_fall)


def factorization_alternatives(data: Data) -> dict[str, Sample]:
    """Other conventions, stages and depths."""
    return {
        **with_measure(data, "finite differences", factorization_fall_differences),
        **with_measure(data, "ratio of means", factorization_fall_of_means),
        **at_each_stage(data, "to stage", factorization_fall_to, first=2),
        **at_other_depths(data, factorization_fall),
    }


def factorization_controls(data: Data) -> dict[str, Sample]:
    """Failing networks less controls."""
    return less_controls(data, factorization_fall)


def _sharper(data: Data, name: str, code: str, shallow: int, deep: int) -> Sample:
    """Largest drop of a shallow network less that of a deep one of the same seed."""
    pair = [networks_of(data, code, depth) for depth in (shallow, deep)]
    return sample(largest_drop(pair[0][name]) - largest_drop(pair[1][name]), *pair)


def sharper_cases(data: Data) -> dict[str, Sample]:
    """The rate code, shallowest less deepest of the depths that Fig. 2 compares."""
    depths = listed_attribute(data["depth"], "compared")
    shallow, deep = min(depths), max(depths)
    if shallow == deep:
        return {}
    return {f"rate, depth {shallow} less depth {deep}": _sharper(data, "factorization", "rate", shallow, deep)}


def sharper_alternatives(data: Data) -> dict[str, Sample]:
    """Other conventions and depths, and the shallowest rate-coded networks less bump-coded ones."""
    depths = listed_attribute(data["depth"], "compared")
    shallow, deep, deepest = min(depths), max(depths), max(trained_depths(data, "rate"))
    if shallow == deep:
        return {}
    rate, bump = (networks_of(data, code, shallow) for code in ("rate", "bump"))
    drops = [largest_drop(own["factorization"]) for own in (rate, bump)]
    cases = {
        "rate, finite differences": _sharper(data, "factorization_differences", "rate", shallow, deep),
        "rate, ratio of means": _sharper(data, "factorization_of_means", "rate", shallow, deep),
        f"depth {shallow}, rate less bump": sample(drops[0] - drops[1], rate, bump),
    }
    others = [depth for depth in depths if shallow < depth < deep] + ([deepest] if deepest > deep else [])
    return cases | {
        f"rate, depth {shallow} less depth {depth}": _sharper(data, "factorization", "rate", shallow, depth)
        for depth in others
    }


# -- C6: volume ------------------------------------------------------------------------------------------------------


def volume_cases(data: Data) -> dict[str, Sample]:
    """By code, at the usual depth."""
    return at_usual_depth(data, spread_excess)


def volume_alternatives(data: Data) -> dict[str, Sample]:
    """Along stages, at each stage, and at other depths."""
    return {
        **with_measure(data, "rise of the whole grid's spread along stages", spread_rise),
        **at_each_stage(data, "stage", spread_excess_at),
        **at_other_depths(data, spread_excess),
    }


def volume_controls(data: Data) -> dict[str, Sample]:
    """Failing networks less controls."""
    return less_controls(data, spread_excess)


# -- C16: every depth ------------------------------------------------------------------------------------------------


def _by_depth(data: Data, score: str) -> dict[str, Sample]:
    cases = {}
    for code in CODES:
        for depth in trained_depths(data, code):
            networks = networks_of(data, code, depth)
            cases[f"{code}, depth {depth}"] = sample(networks[score], networks)
    return cases


def held_out_error(data: Data) -> dict[str, Sample]:
    """By code and depth."""
    return _by_depth(data, "ood_over_blank")


def held_out_accuracy(data: Data) -> dict[str, Sample]:
    """By code and depth."""
    return _by_depth(data, "ood_accuracy")


# -- C20: cross-terms ------------------------------------------------------------------------------------------------


def cross_term_cases(data: Data) -> dict[str, Sample]:
    """By code, at the usual depth."""
    return at_usual_depth(data, late_cross_terms)


def cross_term_alternatives(data: Data) -> dict[str, Sample]:
    """Other conventions and depths."""
    return {
        **with_measure(data, "held-out points", late_held_out_cross_terms),
        **with_measure(data, "over g_xx + g_yy", late_lost_factorization),
        **at_other_depths(data, late_cross_terms),
    }


def cross_term_controls(data: Data) -> dict[str, Sample]:
    """Failing networks less controls."""
    return less_controls(data, late_cross_terms)


CLAIMS = (
    Claim(
        "C4",
        "Linear probes read the factors worse, the deeper the stage",
        "§3.4, Fig. 2a–b",
        statements=(
            Statement(
                effect("fall of held-out probe R², first to last hidden stage", 0.1),
                probe_cases,
                probe_alternatives,
                probe_controls,
            ),
        ),
        studies=("depth",),
        beside=("controls",),
    ),
    Claim(
        "C5",
        "Factorization decays with depth; shallow rate-coded networks drop sharper",
        "§3.4, Fig. 2c–d",
        statements=(
            Statement(
                effect("fall of factorization F, first hidden stage to output", 0.02),
                factorization_cases,
                factorization_alternatives,
                factorization_controls,
            ),
            Statement(
                effect("largest one-layer drop of factorization F, shallow less deep networks", 0.02),
                sharper_cases,
                sharper_alternatives,
            ),
        ),
        studies=("depth",),
        beside=("controls",),
    ),
    Claim(
        "C6",
        "The volume element is distorted with depth, most in the held-out region",
        "§3.4, Fig. 2e–f",
        statements=(
            Statement(
                effect("spread of log10 dv at the output, held-out less kept region (decades)", 0.1),
                volume_cases,
                volume_alternatives,
                volume_controls,
            ),
        ),
        studies=("depth",),
        beside=("controls",),
    ),
    Claim(
        "C16",
        "CNNs of every depth fail to compose",
        "App. E.3, Fig. 10–12",
        statements=(
            Statement(above("held-out error over blank", 0.5), held_out_error),
            Statement(below("held-out accuracy", 0.9), held_out_accuracy),
        ),
        studies=("depth",),
    ),
    Claim(
        "C20",
        "Cross-terms between factors are largest near the output",
        "§3.4",
        statements=(
            Statement(
                effect("normalised cross-term |g_xy|, last two stages less the others", 0.02),
                cross_term_cases,
                cross_term_alternatives,
                cross_term_controls,
            ),
        ),
        studies=("depth",),
        beside=("controls",),
    ),
)
