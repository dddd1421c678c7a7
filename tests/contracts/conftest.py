"""Every contract test runs over everything that is registered when tests are collected.

A test asks for `encoding`, `holdout`, `full_holdout`, `training_rule` or `decoder` and gets one after the other, also
those that a plug-in registered.
"""

from recombine.decoders import DECODERS
from recombine.encodings import ENCODINGS
from recombine.holdouts import HOLDOUTS
from recombine.tasks import TRAINING_RULES
from tests.small import small_decoder

EMPTY = ("mask", "where")
"""Hold-outs that hold out nothing until they are told what, so that tasks refuse them."""
FAMILIES = {
    "encoding": lambda: {name: cls() for name, cls in ENCODINGS.items()},
    "holdout": lambda: {name: cls() for name, cls in HOLDOUTS.items()},
    "full_holdout": lambda: {name: cls() for name, cls in HOLDOUTS.items() if name not in EMPTY},
    "training_rule": lambda: {name: cls() for name, cls in TRAINING_RULES.items()},
    "decoder": lambda: {name: small_decoder(name) for name in DECODERS},
}


def pytest_generate_tests(metafunc):
    for fixture, family in FAMILIES.items():
        if fixture in metafunc.fixturenames:
            members = family()
            metafunc.parametrize(fixture, list(members.values()), ids=list(members))
