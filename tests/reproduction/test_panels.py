"""The style of figures."""

import matplotlib
from matplotlib import pyplot

from recombine.panels import styled


def test_a_style_ends_with_its_context():
    before = dict(matplotlib.rcParams)
    with styled():
        assert dict(matplotlib.rcParams) != before
        pyplot.close(pyplot.figure())
    assert dict(matplotlib.rcParams) == before


def test_a_notebook_shows_figures_after_the_first_one():
    with styled():
        matplotlib.interactive(True)  # as IPython's backend does when the first figure loads it
    assert matplotlib.is_interactive()
    matplotlib.interactive(False)
