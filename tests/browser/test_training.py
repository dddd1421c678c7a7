"""Training in the page in a real browser, from disk, with the network off."""

from importlib.resources import files

import pytest
from torch import nn

import recombine as rc
from recombine.page.training import training_panel
from recombine.papers.forced_rendering import PAPER
from recombine.reproduction.report import policy
from tests.browser.conftest import ATTEMPTS, faults, needs_axe, overflow, until

pytestmark = pytest.mark.browser
PANEL = PAPER.training_panel
STEPS = PANEL.spec.recipe.steps
LEARNS = "() => (window.training.run?.latest?.step ?? 0) > 0"
MOST_WAITS = 900
"""Of a tenth of a second, for a training on a machine that is busy with other tests."""


WHOLE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Training</title>
<meta http-equiv="Content-Security-Policy" content="{policy}"><meta name="viewport" content="width=device-width">
<style>{page}</style><style>{panel.style}</style></head><body><main><h1>Training</h1>
{panel.body}</main>{panel.payload}<script type="module">{panel.script}</script></body></html>"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The panel in a page that holds nothing else."""
    panel = training_panel(PANEL)
    page = (files("recombine.page") / "page.css").read_text()
    path = tmp_path_factory.mktemp("page") / "page.html"
    rules = policy([panel.script], [page, panel.style], workers=panel.workers)
    path.write_text(WHOLE.format(policy=rules, page=page, panel=panel))
    return path


@pytest.fixture
def shown(opened, saved):
    """Opens the page once the panel is there."""

    def opener(path=saved, **settings):
        page = opened(path, **settings)
        until(page, "() => Boolean(window.training)")
        return page

    return opener


def finish(page):
    """Waits for the end of the training; what the panel then knows."""
    for _ in range(MOST_WAITS):
        if page.evaluate("window.training.run?.done ?? false"):
            return page.evaluate("(({heldOut, kept, step, seconds}) => ({heldOut, kept, step, seconds}))"
                                 "(window.training.run.latest)")  # fmt: skip
        page.wait_for_timeout(100)
    raise AssertionError(page.locator("#training-now").inner_text())


def step_of(page):
    return page.evaluate("window.training.run?.latest?.step ?? 0")


def settled_step(page):
    """The step at which a paused run stays; what the worker did before it heard of the pause arrives late."""
    for _ in range(20):
        step = step_of(page)
        page.wait_for_timeout(700)
        if step_of(page) == step:
            return step
    raise AssertionError("the run goes on")


@pytest.mark.slow
def test_the_box_fills_with_stripes_and_fails_without(shown, tmp_path):
    page = shown(rc.explore(nn.Linear(2, 16), "x=0:3,y=0:3", training=True).save(tmp_path / "page.html"))
    for stripes in (False, True):
        page.locator("#training-isolated").set_checked(stripes)
        page.locator("#training-run").click()
        result = finish(page)
        print(f"{'with' if stripes else 'without'} stripes: {result}")
        assert result["step"] == STEPS
        assert result["kept"] == 1
        assert result["heldOut"] >= PANEL.filled if stripes else result["heldOut"] <= PANEL.failed
        words = "With stripes, the decoder filled" if stripes else "Without stripes, the decoder failed to fill"
        until(page, f"() => document.getElementById('training-now').textContent.startsWith('{words}')")
    shares = [page.locator(f"#training-{kind} td").first.inner_text() for kind in ("without", "with")]
    assert int(shares[0].rstrip(" %")) <= 60 < 90 <= int(shares[1].rstrip(" %"))


def test_the_box_soon_fills_with_stripes(shown):
    page = shown()
    page.locator("#training-isolated").check()
    page.locator("#training-run").click()
    for _ in range(MOST_WAITS):
        if (page.evaluate("window.training.run?.latest?.heldOut") or 0) >= PANEL.filled:
            break
        page.wait_for_timeout(100)
    latest = page.evaluate("window.training.run.latest")
    assert latest["heldOut"] >= PANEL.filled
    assert latest["step"] < STEPS


def test_the_map_has_the_colours_of_its_key(shown):
    """Of points that are not known yet, in light and in dark."""
    for scheme, colour in (("light", [233, 237, 242]), ("dark", [38, 45, 54])):
        page = shown(color_scheme=scheme)
        pen = "document.getElementById('training-map').getContext('2d')"
        assert page.evaluate(f"[...{pen}.getImageData(2, 2, 1, 1).data].slice(0, 3)") == colour


def test_starts_pauses_goes_on_and_resets_by_keyboard(shown):
    page = shown()
    page.locator("#training-run").focus()
    page.keyboard.press("Enter")
    until(page, "() => (window.training.run?.latest?.step ?? 0) > 3")
    assert page.locator("#training-run").inner_text() == "Pause"
    page.keyboard.press("Enter")
    until(page, "() => document.getElementById('training-now').textContent.includes('paused')")
    paused = settled_step(page)
    assert page.locator("#training-run").inner_text() == "Continue"
    page.keyboard.press("Enter")
    until(page, f"() => window.training.run.latest.step > {paused}")
    reached = []
    for key in ("Enter", "Space", "ArrowUp", "ArrowRight", "ArrowLeft"):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
        page.keyboard.press(key)
        if key == "Enter":
            until(page, "() => document.getElementById('training-now').textContent === 'Not started.'")
            assert page.evaluate("window.training.run") is None
    assert reached == [f"training-{name}" for name in ("reset", "isolated", "seed", "x", "y")]
    assert page.locator("#training-isolated").is_checked()
    assert page.locator("#training-seed").input_value() == "1"
    assert page.evaluate("window.training.point") == 15 * 28 + 13


@pytest.mark.slow
def test_a_seed_decides_the_training(shown):
    page = shown()
    first = {}
    for seed in ("3", "4", "3"):
        page.locator("#training-seed").fill(seed)
        page.locator("#training-seed").press("Tab")
        page.locator("#training-run").click()
        until(page, "() => (window.training.run?.losses.length ?? 0) > 1")
        assert page.evaluate("window.training.run.seed") == int(seed)
        loss = page.evaluate("window.training.run.losses[0][1]")
        assert first.setdefault(seed, loss) == loss
        page.locator("#training-reset").click()
    assert first["3"] != first["4"]


@pytest.mark.slow
def test_another_choice_while_it_trains_begins_again(shown):
    page = shown()
    page.locator("#training-run").click()
    until(page, "() => (window.training.run?.latest?.step ?? 0) > 8")
    page.evaluate("document.getElementById('training-isolated').click()")
    assert page.evaluate("window.training.run.latest") is None
    until(page, LEARNS)
    assert page.evaluate("window.training.run.isolated")
    assert page.evaluate("window.training.latest.without.latest.step") > 8


def test_a_combination_is_chosen_and_drawn(shown):
    page = shown(viewport={"width": 400, "height": 800}, has_touch=True)
    page.locator("#training-run").click()
    until(page, "() => (window.training.run?.latest?.step ?? 0) > 3")
    page.locator("#training-map").scroll_into_view_if_needed()
    box = page.locator("#training-map").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 3, box["y"] + 3)
    until(page, "() => window.training.run.latest.point === 27 * 28")
    assert page.locator("#training-where").inner_text() == "This combination is trained on."
    assert overflow(page) <= 0


@pytest.mark.slow
def test_reduced_motion_draws_less_often(shown):
    page = shown(reduced_motion="reduce")
    page.locator("#training-run").click()
    until(page, LEARNS)
    first = page.evaluate("window.training.run.accuracies.length")
    page.wait_for_timeout(1000)
    assert page.evaluate("window.training.run.accuracies.length") <= first + 1


def test_the_policy_lets_only_the_panels_worker_in(browser, saved):
    page = browser.new_context(offline=True).new_page()
    page.goto(saved.as_uri())
    page.locator("#training-run").click()
    until(page, LEARNS)
    assert page.evaluate(ATTEMPTS) == []
    refused = """() => [
      () => new Worker(URL.createObjectURL(new Blob(['0']))), () => trustedTypes.createPolicy('another', {}),
      () => trustedTypes.createPolicy('recombine-training', {}),
    ].map(attempt => { try { attempt(); return 'let in' } catch { return 'refused' } })"""
    assert page.evaluate(refused) == ["refused"] * 3


@needs_axe
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_fault(browser, saved, scheme):
    assert faults(browser, saved, LEARNS, before="#training-run", color_scheme=scheme) == []
