"""What tests ask of judgements."""

from recombine.reproduction.claims import Judgement, Test

SIDES = {"yes": "as claimed", "no": "opposite", "reversed": "opposite"}
NONE = ("not decidable", "not measured")


def differing(judgement: Judgement) -> list[Test]:
    """Alternatives with other outcomes than the first case of their statement; directions agree with their side."""
    first = {test.statistic: test.outcome for test in reversed(judgement.tests)}

    def agree(own: Test) -> bool:
        other = first.get(own.statistic, "")
        return own.outcome == other or SIDES.get(own.outcome) == other or own.outcome == SIDES.get(other)

    return [test for test in judgement.alternatives if test.outcome not in NONE and not agree(test)]
