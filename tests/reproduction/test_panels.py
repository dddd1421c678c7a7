"""The style of figures, and panels shared by several of them."""

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb

from recombine.panels import COLORS, group_dots, shades, styled
from recombine.papers.forced_rendering.palette import ARCHITECTURES, arm_styles


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


@pytest.mark.parametrize(("outlier", "mark"), [(300.0, ">"), (-300.0, "<")])
def test_an_outlier_is_an_arrow_with_its_value(outlier, mark):
    figure, ax = pyplot.subplots()
    group_dots(ax, {"a": np.linspace(0, 1, 20), "b": np.append(np.linspace(1, 2, 20), outlier)}, COLORS[:2])
    assert [line.get_marker() for line in ax.lines].count(mark) == 1
    assert max(abs(value) for line in ax.lines for value in line.get_xdata()) < 10
    assert [text.get_text() for text in ax.texts] == [f"{outlier:g}"]
    pyplot.close(figure)


def test_equal_values_have_no_outliers():
    figure, ax = pyplot.subplots()
    group_dots(ax, {"a": np.ones(9), "b": np.array([np.nan]), "c": np.append(np.ones(9), 0.5)}, COLORS[:3])
    assert not ax.texts
    pyplot.close(figure)


def _contrast(color):
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in to_rgb(color)]
    return 1.05 / (np.dot([0.2126, 0.7152, 0.0722], linear) + 0.05)


def test_lines_are_dark_enough_on_white():
    assert min(map(_contrast, [*COLORS, *ARCHITECTURES.values()])) > 3
    assert min(_contrast(shade) for color in ARCHITECTURES.values() for shade in shades(color, 9)) > 2.3


def test_arms_of_an_architecture_share_its_color():
    styles = arm_styles(["bumps alone", "stripes only", "low-rank, no penalty"])
    assert [style["color"] for style in styles.values()] == [*[ARCHITECTURES["CNN"]] * 2, ARCHITECTURES["low-rank"]]
    assert styles["bumps alone"]["linestyle"] != styles["stripes only"]["linestyle"]
