"""Figures of a diagnosis can be read: no text over another, no legend over curves, no empty panel."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import xarray
from matplotlib import pyplot

from recombine.diagnosis.drawing import plane_figure, profile_figure, stage_labels

LONG = "inner.unet.down_blocks.{0}.attentions.0.transformer_blocks.{0}"


def diagnosis(count, factors=("x", "y")):
    """A result with long names, as of a diffusion model."""
    generator = np.random.default_rng(0)
    stages = ["input", *(LONG.format(k) if k % 3 else f"inner.unet.up_blocks.{k}" for k in range(count - 2)), "output"]
    shape = (6,) * len(factors)
    by_stage = {
        name: ("stage", generator.random(count))
        for name in ("stripe_index", "localisation_index", "factorization_mean", "factorization_of_means")
        if len(factors) > 1 or "factorization" not in name
    }
    return xarray.Dataset(
        {
            **by_stage,
            "volume": (("stage", *factors), generator.random((count, *shape))),
            "held_out": (factors, np.arange(6 ** len(factors)).reshape(shape) % 5 == 0),
            "probe_in_sample": (("stage", "factor"), generator.random((count, len(factors)))),
            "probe_held_out": (("stage", "factor"), 1 - 3 * generator.random((count, len(factors)))),
        },
        coords={"stage": stages, **{name: np.arange(6.0) for name in factors}},
        attrs={
            "metric": "finite differences",
            "metric_reason": "since the derivative is lost at inner.unet.up_blocks.0",
            "notes": "outputs are random (from inner.unet.mid on): each example was run alone\nnot run: inner.head",
        },
    )


def boxes(figure, texts):
    renderer = figure.canvas.get_renderer()
    return [text.get_window_extent(renderer) for text in texts if text.get_visible() and text.get_text()]


def assert_readable(figure):
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    axes = [ax for ax in figure.axes if ax.get_visible()]
    apart = [figure._suptitle, *([figure._supxlabel] if figure._supxlabel else [])]
    for ax in axes:
        apart += [ax.title, ax._left_title]
        for one, other in combinations(boxes(figure, [ax.title, ax._left_title]), 2):
            assert not one.overlaps(other)
        if ax.get_legend():
            legend = ax.get_legend().get_window_extent(renderer)
            assert not any(legend.overlaps(other.get_window_extent(renderer)) for other in axes)
    for one, other in combinations(boxes(figure, apart), 2):
        assert not one.overlaps(other)
    for ax in axes:
        labels = [
            label for label in ax.get_xticklabels() if label.get_text() and ax.xaxis.get_tick_params()["labelbottom"]
        ]
        slanted = [label for label in labels if label.get_rotation()]
        ends = [label.get_window_extent(renderer).x1 for label in slanted]
        assert all(after - before > 12 for before, after in pairwise(ends)), "labels touch"
        assert all(label.get_ha() == "right" for label in slanted)
    for note in boxes(figure, [figure._supxlabel] if figure._supxlabel else []):
        assert not any(note.overlaps(ax.get_tightbbox(renderer)) for ax in axes)
    assert boxes(figure, [figure._suptitle])[0].width < figure.bbox.width
    pyplot.close(figure)


@pytest.mark.parametrize("count", [3, 13])
def test_long_names_and_many_stages(count):
    result = diagnosis(count)
    assert_readable(profile_figure(result))
    assert_readable(plane_figure(result))


def test_no_empty_panel_for_one_factor():
    figure = profile_figure(diagnosis(6, ("angle",)))
    assert [ax.get_title("left") for ax in figure.axes] == ["probe R²", "tuning"]
    assert all(ax.lines for ax in figure.axes)
    assert_readable(figure)


def test_scores_below_the_panel_are_arrows():
    result = diagnosis(6)
    result["probe_held_out"][3] = -40.0
    panel = profile_figure(result).axes[1]
    (arrows,) = [line for line in panel.lines if line.get_marker() == "v"]
    assert arrows.get_xdata()[-1] == 3
    assert panel.get_ylim()[0] > -1.5
    pyplot.close(panel.figure)


def test_a_stage_without_volume_says_so():
    result = diagnosis(4)
    result["volume"][1] = 0.0
    figure = plane_figure(result)
    assert [text.get_text() for text in figure.axes[1].texts] == ["0 everywhere"]
    pyplot.close(figure)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_stage_without_numbers_is_not_called_zero(number):
    result = diagnosis(4)
    result["volume"][1] = number
    result["volume"][2, 0] = number
    figure = plane_figure(result)
    assert [text.get_text() for text in figure.axes[1].texts] == ["not finite"]
    assert np.isfinite(figure.axes[2].images[0].get_clim()).all()
    pyplot.close(figure)


@pytest.mark.parametrize("draw", [profile_figure, plane_figure])
def test_names_are_no_formulas(draw):
    stages = ["input", r"$\frac{$", r"\$b$c$", "output"]
    result = diagnosis(4).assign_coords(stage=stages)
    result.attrs["notes"] = result.attrs["metric_reason"] = r"not run: $\frac{$"
    figure = draw(result)
    figure.canvas.draw()
    texts = [text for text in figure.findobj(lambda artist: hasattr(artist, "get_text")) if "$" in text.get_text()]
    drawn = {text._preprocess_math(text.get_text()) for text in texts}
    assert {(stage, False) for stage in stages[1:3]} <= drawn
    assert all(not formula for _, formula in drawn)
    pyplot.close(figure)


def test_labels_are_short_and_stay_different():
    stages = ["input", *(f"a.b.{'c' * 30}.{k}" for k in range(3)), "a.b.d", "output"]
    labels, prefix = stage_labels(stages)
    assert prefix == "a.b."
    assert len(set(labels)) == len(stages)
    assert max(map(len, labels)) <= 26
    assert labels[-2:] == ["d", "output"]
    assert stage_labels(["input", "project", "unet.mid", "output"])[1] == ""
    same = ["input", *(f"{'c' * 12}{k}{'d' * 20}" for k in range(3)), "output"]
    assert stage_labels(same)[0] == same
