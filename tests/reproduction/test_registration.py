"""A changed threshold or statistic changes a statement's digest; a comment, a docstring or a line break does not."""

import importlib.util
import sys
import textwrap

import pytest

from recombine.papers import DEFAULT
from recombine.reproduction.registration import digest

MODULE = '''
"""A claim."""
FACTOR = 2


def scaled(value):
    return value * FACTOR


def cases(data):
    """What is judged."""
    # a comment
    return {name: scaled(value) for name, value in data.items()}
'''


@pytest.fixture
def cases(tmp_path, monkeypatch):
    """The function of a module with that text, as if it belonged to a paper."""

    def make(text):
        path = tmp_path / f"claims{len(list(tmp_path.iterdir()))}.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location("recombine.papers.planted.claims", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module.cases

    return make


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a comment", "# another comment, longer"),
        ('"""What is judged."""', '"""Something else."""'),
        ("    return value * FACTOR", "    return (\n        value * FACTOR\n    )"),
        ("def scaled(value):", "def scaled(value: float) -> float:"),
    ],
)
def test_what_a_reader_sees_only_changes_nothing(cases, old, new):
    assert old in MODULE
    assert digest("C1", cases(MODULE)) == digest("C1", cases(MODULE.replace(old, new)))


@pytest.mark.parametrize(("old", "new"), [("FACTOR = 2", "FACTOR = 3"), ("value * FACTOR", "value + FACTOR")])
def test_what_is_computed_changes_the_digest(cases, old, new):
    assert digest("C1", cases(MODULE)) != digest("C1", cases(MODULE.replace(old, new)))


def test_digests_are_the_same_every_time_and_differ_between_statements():
    digests = [text for claim in DEFAULT.claims.values() for text in claim.digests().values()]
    again = [text for claim in DEFAULT.claims.values() for text in claim.digests().values()]
    assert digests == again
    assert len(set(digests)) == len(digests)


def test_classes_and_default_values_are_covered(cases):
    text = MODULE.replace(
        "def scaled(value):\n    return value * FACTOR",
        textwrap.dedent('''
        class Scale:
            """A factor."""

            def of(self, value):
                return value * FACTOR


        def scaled(value, power=2):
            return Scale().of(value) ** power
    ''').strip(),
    )
    assert text != MODULE
    before = digest("C1", cases(text))
    assert digest("C1", cases(text.replace('"""A factor."""', '"""Something."""'))) == before
    for old, new in [("FACTOR = 2", "FACTOR = 3"), ("value * FACTOR", "value + FACTOR"), ("power=2", "power=3")]:
        assert digest("C1", cases(text.replace(old, new))) != before


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("recombine.reproduction.intervals.TRIM", 0.1),
        ("recombine.papers.forced_rendering.penalties.BAND", 0.4),
        ("recombine.reproduction.samples.FEWEST_LEARNT", 0.5),
    ],
)
def test_rules_and_numbers_of_measuring_code_are_covered(place, value, monkeypatch):
    claim, before = DEFAULT.claims["C7"], DEFAULT.claims["C7"].digests(DEFAULT.measured)
    monkeypatch.setattr(place, value)
    monkeypatch.delitem(DEFAULT.__dict__, "measured")
    after = claim.digests(DEFAULT.measured)
    monkeypatch.delitem(DEFAULT.__dict__, "measured")
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


def test_a_version_that_is_raised_is_covered():
    claim = DEFAULT.claims["C7"]
    raised = {**DEFAULT.measured, "penalties": [{"study": 99}, {}]}
    assert not set(claim.digests(raised).values()) & set(claim.digests(DEFAULT.measured).values())


def test_alternatives_and_controls_are_registered_too():
    names = DEFAULT.claims["C5"].digests(DEFAULT.measured)
    assert any(name.endswith("(alternatives)") for name in names)
    assert any(name.endswith("(controls)") for name in names)
