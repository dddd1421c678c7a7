"""The explorer page in a real browser, from disk, with the network off."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest
import torch
from torch import nn

import recombine as rc
from tests.browser.boxes import FAULTS, SIZES
from tests.browser.conftest import ATTEMPTS, HOSTILE, faults, needs_axe, overflow, until
from tests.page.decoders import arguments, points, subject, trained, values_at

pytestmark = pytest.mark.browser

STARTED = "() => window.explorer && window.explorer.sides[0].shown !== null"
SURVEYED = "() => window.explorer && [...document.querySelectorAll('.views > p')].every((progress) => progress.hidden)"
SMALL = rc.MLP(width=8, depth=2)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A page of two small decoders on one task."""
    task, module = trained("cnn")
    settings = {
        **arguments("cnn"),
        "module": {"trained": module, "untrained": rc.RunSpec(task=task, decoder=SMALL).module()},
    }
    return rc.explore(**settings).save(tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def shown(opened, saved):
    """Opens a page once its first decoder is drawn."""

    def opener(path=saved, address="", **settings):
        page = opened(path, address, **settings)
        until(page, STARTED)
        return page

    return opener


def pixels(page, which=0):
    """What a picture of the first decoder shows."""
    return page.evaluate("k => document.querySelectorAll('.side figure canvas')[k].toDataURL()", which)


def test_dragging_into_the_holdout_changes_the_output(shown):
    page = shown(address="#at=0,0")
    assert "in the training range" in page.locator(".numbers").first.inner_text()
    before = pixels(page)
    box = page.locator("#plane").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 13, box["y"] + box["height"] / 2 - 13, steps=5)
    page.mouse.up()
    until(page, "() => document.querySelector('.numbers').textContent.startsWith('held out')")
    assert pixels(page) != before
    assert page.evaluate("window.explorer.state.at.every(p => p >= 3 && p <= 6)")


def test_the_sentence_says_what_the_stored_scores_say(shown):
    task, module = trained("cnn")
    scores = rc.evaluate(task, module, torch.device("cpu"))
    held = scores["held_out"].bool()
    error = (scores["error"][held].mean() / scores["blank"][held].mean()).item()
    count = f"{int(scores['hit'][held].sum())} of {int(held.sum())}"
    placed = f"Over the whole hold-out, {count} bumps are in place, and the mean error is"
    page = shown(address="#at=4,4&decoder=0&beside=-1")
    point = 4 * 10 + 4
    relative = (scores["error"][point] / scores["blank"][point]).item()
    until(page, "() => !document.getElementById('answer').hidden")
    line = page.locator(".answer").first
    assert f"{placed} {error:.2f}." in line.inner_text()
    right = bool(scores["hit"][point]) and relative < 0.5
    assert line.inner_text().startswith("Composes here") == right
    assert ("right" in line.get_attribute("class")) == right
    assert page.locator(".side.wrong").count() == int(not right)
    until(page, "() => document.getElementById('spoken').textContent.includes('Over the whole hold-out')")


def test_the_plane_shows_the_error_of_every_combination(shown):
    task, module = trained("cnn")
    scores = rc.evaluate(task, module, torch.device("cpu"))
    page = shown(address="#at=9,9&decoder=0&beside=-1")
    page.wait_for_timeout(200)
    ours = torch.tensor(page.evaluate("[...window.explorer.decoders[0].errors]"))
    assert torch.allclose(ours, (scores["error"] / scores["blank"]).float(), rtol=1e-4)
    shown_error = page.evaluate(SHADES)
    order = [ours[10 * i + j].clamp(max=1).item() for i in range(9) for j in range(9)]
    drawn = [shown_error[j][i] for i in range(9) for j in range(9)]
    assert np.corrcoef(order, drawn)[0, 1] < -0.9, "the larger the error, the darker"
    assert "1 or more" in page.locator("#error-key").inner_text()


SHADES = """() => {
  const canvas = document.getElementById('plane'), pen = canvas.getContext('2d');
  const scale = canvas.width / canvas.clientWidth, margin = 26 * scale, step = (canvas.width - margin) / 10;
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  const shade = (i, j) => {
    const [x, y] = [margin + (i + 0.3) * step, (j + 0.3) * step].map(Math.round);
    const at = 4 * (y * canvas.width + x);
    return data[at] + data[at + 1] + data[at + 2];
  };
  return [...Array(9).keys()].map((j) => [...Array(9).keys()].map((i) => shade(i, j)));
}"""
"""Brightness of the plane's cells by row and column, without those that the point is in."""


def test_a_button_switches_to_a_decoder_that_composes(shown, tmp_path):
    task, _ = trained("cnn")
    failing, right = (
        rc.RunSpec(task=task, decoder=SMALL).module(),
        Looked(task, task.render(task.grid.points).flatten(1)),
    )
    settings = {**arguments("cnn"), "module": {"failing": failing, "composing": right}}
    page = shown(rc.explore(**settings).save(tmp_path / "page.html"), "#at=4,4&decoder=0&beside=-1")
    button = page.locator(".answer button").first
    assert button.inner_text() == "Try: composing"
    button.click()
    assert page.evaluate("window.explorer.state.decoder") == 1
    until(page, "() => document.querySelector('.answer strong').textContent === 'Composes here'")
    assert page.locator(".answer button").first.inner_text() == "See it fail: failing"
    held = int(task.held_out.sum())
    assert f"{held} of {held} bumps are in place" in page.locator(".answer").first.inner_text()


class Looked(nn.Module):
    """True images, found by the product of the two codes."""

    def __init__(self, task, targets):
        super().__init__()
        codes = [torch.linalg.pinv(task.encoding.code(factor.values, factor).float()) for factor in task.grid.factors]
        self.sizes = list(task.code_sizes)
        self.one, self.other = (nn.Parameter(own) for own in codes)
        self.targets = nn.Parameter(targets.float())

    def forward(self, codes):
        x, y = codes.split(self.sizes, dim=1)
        return ((x @ self.one)[:, :, None] * (y @ self.other)[:, None, :]).flatten(1) @ self.targets


class Places(nn.Module):
    """One unit per combination, found by the product of the two codes."""

    def __init__(self, task):
        super().__init__()
        self.looked = Looked(task, torch.eye(task.grid.size))

    def forward(self, codes):
        return self.looked(codes)


def test_the_sentence_names_the_stage_at_which_a_decoder_breaks(shown, tmp_path):
    task, _ = trained("cnn")
    seen = task.render(task.grid.points).flatten(1) * ~task.held_out[:, None]
    output = nn.Linear(*seen.shape, bias=False)
    output.weight.data = seen.T.float()
    module = rc.StagedDecoder({"places": Places(task), "output": output})
    known = rc.diagnose(module, task.grid, encode=task.encoding, holdout=task.held_out, targets=task.render)
    assert known.breaks_at == "output"
    settings = {**arguments("cnn"), "module": module}
    page = shown(rc.explore(**settings).save(tmp_path / "page.html"), "#at=4,4")
    text = page.locator(".answer").first.inner_text()
    assert text.endswith(
        f"It breaks at {known.breaks_at}, the first stage that treats held-out combinations differently."
    )
    composing = rc.StagedDecoder({"output": Looked(task, task.render(task.grid.points).flatten(1))})
    page = shown(rc.explore(**{**settings, "module": composing}).save(tmp_path / "composing.html"), "#at=4,4")
    assert "It breaks" not in page.locator(".answer").first.inner_text()


def test_touch_moves_the_point(shown):
    page = shown(viewport={"width": 400, "height": 800}, has_touch=True)
    box = page.locator("#plane").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 4, box["y"] + 4)
    until(page, "() => window.explorer.state.at.join() === '9,0'")
    assert overflow(page) <= 0


def test_nothing_overlaps_or_is_cut(shown):
    page = shown()
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(50)
        assert page.evaluate(FAULTS, ":not(*)") == [], (width, height)


def test_the_test_of_boxes_sees_faults(shown):
    page = shown()
    page.evaluate("""() => {
      document.querySelector('.numbers').style.marginTop = '-20px';
      document.querySelector('#decoder').style.width = '3rem';
      Object.assign(document.querySelector('.slider label').style, { width: '3rem', display: 'block' });
      document.querySelector('.slider label').textContent = 'a long name of a factor';
    }""")
    found = " ".join(page.evaluate(FAULTS, ":not(*)"))
    assert all(fault in found for fault in ("overlap: h2", "cut: select", "cut: label"))


def test_canvases_say_what_they_show(shown):
    page = shown(address="#at=2,3&beside=-1")
    until(page, "() => document.querySelector('.side canvas').getAttribute('aria-label').includes('y 3')")
    assert page.locator(".side canvas").first.get_attribute("aria-label") == "output, of trained at x 2, y 3"
    assert page.locator("#plane").get_attribute("aria-label").startswith("Plane of x (across) and y (down)")


def test_every_control_works_by_keyboard(shown):
    page = shown(address="#at=2,2&beside=-1&snap=1")
    page.keyboard.press("Tab")
    if page.evaluate("document.activeElement.closest('.answer') !== null"):  # a button offers another decoder
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "plane"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    assert page.evaluate("window.explorer.state.at") == [3, 7]
    page.keyboard.press("Home")
    assert page.evaluate("window.explorer.state.at") == [0, 0]
    reached = []
    for _ in range(11):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.id")
        reached.append(focused)
        keys = {
            "snap": "Space",
            "play": "Enter",
            "copy": "Shift",
            "unit": "3",
            "factor0": "ArrowRight",
            "factor1": "ArrowRight",
        }
        page.keyboard.press(keys.get(focused, "ArrowDown"))
        if focused == "play":
            until(page, "() => window.explorer.state.at[0] > 0.9")
            page.keyboard.press("Enter")
    assert reached[:10] == [
        "factor0",
        "factor1",
        "snap",
        "play",
        "copy",
        "tour-start",
        "decoder",
        "beside",
        "stage",
        "unit",
    ]
    state = page.evaluate("window.explorer.state")
    assert (state["snap"], state["decoder"], state["beside"], state["stage"]) == (False, 1, 0, 1)
    assert state["unit"] == 3


def test_an_address_restores_every_control(shown):
    page = shown()
    page.evaluate("window.explorer.set({at: [4.25, 6.5], decoder: 1, beside: -1, stage: 2, unit: 5, snap: false})")
    until(page, "() => location.hash.includes('4.25')")
    again = shown(address=page.evaluate("location.hash"))
    assert again.evaluate("window.explorer.state") == page.evaluate("window.explorer.state")
    for control in ("decoder", "beside", "stage", "across", "down"):
        there, here = (p.evaluate("id => document.getElementById(id).selectedIndex", control) for p in (page, again))
        assert there == here
    assert not again.locator("#snap").is_checked()
    assert again.locator("#unit").input_value() == "5"
    assert again.locator("#factor0").input_value() == "4.25"
    until(again, "() => document.getElementById('spoken').textContent.includes('x 4.3, y 6.5')")


def test_back_undoes_a_whole_drag(shown):
    page = shown(address="#at=0,0")
    until(page, "() => location.hash.includes('decoder=')")
    entries = page.evaluate("history.length")
    box = page.locator("#plane").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.wait_for_timeout(500)  # a pause does not end the drag
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + 4, steps=5)
    assert page.evaluate("location.hash").startswith("#at=0,0&")
    page.mouse.up()
    until(page, "() => location.hash.startsWith('#at=9,0&')")
    assert page.evaluate("history.length") == entries + 1
    page.keyboard.press("ArrowDown")
    until(page, "() => location.hash.startsWith('#at=9,1&')")
    for at in ("9,0", "0,0"):
        page.go_back()
        until(page, f"() => window.explorer.state.at.join() === '{at}'")
    page.go_forward()
    until(page, "() => window.explorer.state.at.join() === '9,0'")


@pytest.mark.parametrize("size", [(1200, 900), (390, 844)], ids=str)
def test_the_tour_goes_by_keyboard_and_in_the_link(shown, size):
    page = shown(address="#at=2,3", viewport=dict(zip(("width", "height"), size, strict=True)))
    page.locator("#tour-start").focus()
    page.keyboard.press("Enter")
    steps = int(page.locator("#tour .soft").inner_text().rpartition(" ")[2])
    assert 6 <= steps <= 8
    marked = set()
    for step in range(1, steps + 1):
        assert page.locator("#tour .soft").inner_text() == f"Step {step} of {steps}"
        assert page.locator(".toured").count() == 1
        assert page.locator(".toured").evaluate("own => own.getBoundingClientRect().top < innerHeight")
        marked.add(page.locator(".toured").evaluate("own => own.outerHTML.slice(0, 200)"))
        until(page, f"() => location.hash.endsWith('&tour={step}')")
        page.keyboard.press("Enter")  # Next has the focus
    assert len(marked) == steps
    assert page.locator("#tour").is_hidden()
    assert page.evaluate("document.activeElement.id") == "tour-start"
    again = shown(address="#at=2,3&tour=3")
    assert again.locator("#tour .soft").inner_text() == f"Step 3 of {steps}"
    again.keyboard.press("Escape")
    assert again.locator("#tour").is_hidden()


def test_quantities_are_explained_on_focus_and_hover(shown):
    page = shown(address="#beside=-1", viewport={"width": 1200, "height": 2000})
    explained = page.locator(".explained")
    assert explained.count() == 5
    for number in range(explained.count()):
        own = explained.nth(number)
        tip = page.locator(f"#{own.get_attribute('aria-describedby')}")
        assert not tip.is_visible()
        own.focus()
        assert tip.is_visible()
        own.blur()
        own.hover()
        assert tip.is_visible()
        page.mouse.move(1, 1)


def numbers_in(text):
    return [float(own.replace("−", "-")) for own in re.findall(r"= ([−\d.e+-]*\d)", text)]


def test_explanations_have_the_numbers_of_the_point(shown):
    task, module = trained("cnn")
    page = shown(address="#at=4,4&beside=-1&stage=1", viewport={"width": 1200, "height": 2400})
    until(page, SURVEYED)
    until(page, "() => [...document.querySelectorAll('.tip strong')].filter((own) => own.textContent).length === 3")
    error, superposed, geometry = (
        numbers_in(own) for own in page.locator(".tip strong").all_text_contents() if own.startswith("Here")
    )
    scores = rc.evaluate(task, module, torch.device("cpu"))
    assert error == [pytest.approx((scores["error"][44] / scores["blank"][44]).item(), rel=0.05)]
    codes = task.codes(task.grid.points).float()
    features = list(module.activations(codes).values())[1].detach().flatten(1)
    metric = rc.metrics.finite_difference_metric(features, task.grid.shape)[44]
    expected = [*(metric[i, j].item() for i, j in ((0, 0), (0, 1), (1, 1))), metric.det().sqrt().item()]
    assert geometry == pytest.approx([*expected, rc.metrics.local_factorization(metric).item()], rel=0.06, abs=1e-6)
    kept = codes[~task.held_out]
    own = rc.metrics.averaged_prediction(
        lambda rows: module(rows) - task.background, codes[44:45], list(task.code_sizes), kept
    )
    output = (module(codes[44:45]) - task.background).flatten()
    assert superposed == [pytest.approx(torch.cosine_similarity(output, own.flatten(), 0).item() ** 2, rel=0.06)]


def test_the_link_to_a_view_is_copied(shown):
    page = shown(address="#at=2,3", permissions=["clipboard-read", "clipboard-write"])
    page.locator("#copy").click()
    until(page, "() => document.getElementById('copy').textContent === 'Link copied'")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(page.url.split("#")[0] + "#at=2,3&decoder=0&")


def test_the_browser_equals_torch(shown):
    own = subject("cnn")
    positions = points(own, 200)
    ours = shown().evaluate("all => all.map(at => [...window.explorer.decoders[0].output(at)])", positions.tolist())
    right = own.outputs(values_at(own.grid, positions)).flatten(1)
    assert (torch.tensor(ours) - right).abs().max() < 1e-5


OUTPUTS = """(all) => Promise.all(all.map((at) =>
  window.explorer.sides[0].runner.ask({ kind: 'output', decoder: 0, at, stage: -1 }).then(({ output }) => [...output])
))"""


def test_a_worker_runs_the_decoders_and_equals_torch(shown):
    page = shown()
    assert page.evaluate("window.explorer.sides.map((side) => side.runner.hasWorker)") == [True, True]
    assert len(page.workers) == 2
    own = subject("cnn")
    positions = points(own, 20)
    right = own.outputs(values_at(own.grid, positions)).flatten(1)
    assert (torch.tensor(page.evaluate(OUTPUTS, positions.tolist())) - right).abs().max() < 1e-6


def test_without_workers_the_page_runs_the_decoders_itself(browser, saved, tmp_path):
    html = saved.read_text()
    assert html.count("worker-src blob:; ") == 1
    (tmp_path / "page.html").write_text(html.replace("worker-src blob:; ", ""))
    page = browser.new_context(offline=True).new_page()
    page.goto((tmp_path / "page.html").as_uri() + "#at=4,4&beside=-1")
    until(page, STARTED)
    assert not page.evaluate("window.explorer.sides[0].runner.hasWorker")
    own = subject("cnn")
    positions = points(own, 20)
    right = own.outputs(values_at(own.grid, positions)).flatten(1)
    assert (torch.tensor(page.evaluate(OUTPUTS, positions.tolist())) - right).abs().max() < 1e-6
    page.locator(".views").scroll_into_view_if_needed()
    until(page, SURVEYED)
    assert page.locator(".side.wrong").count() + page.locator(".answer.right").count() == 1
    page.context.close()


def test_the_newest_point_is_drawn_next_and_others_are_dropped(shown):
    page = shown(address="#at=0,0&beside=-1")
    until(page, "() => !window.explorer.sides[0].busy")
    asked = page.evaluate("""async () => {
      const { explorer } = window, [side] = explorer.sides, { runner } = side, asked = [];
      const ask = runner.ask.bind(runner);
      let release;
      const released = new Promise((done) => { release = done; });
      runner.ask = async (request) => {
        if (request.kind === 'output') asked.push(request.at.join());
        await released;
        return ask(request);
      };
      const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
      for (let k = 1; k < 6; k += 1) {
        explorer.set({ at: [k, k] });
        await frame();
        await frame();
      }
      release();
      while (side.isLate) await frame();
      return asked;
    }""")
    assert asked == ["1,1", "5,5"]
    assert page.evaluate("window.explorer.sides[0].at") == [5, 5]


def test_halves_are_those_of_the_metric(shown):
    task, module = trained("cnn")
    own = task.codes(task.grid.rows(torch.tensor([44]))).float()
    kept = task.codes(task.grid.points[~task.held_out]).float()
    right = rc.metrics.averaged_prediction(
        lambda codes: module(codes) - task.background, own, list(task.code_sizes), kept
    )
    page = shown()
    sum_of_halves = page.evaluate(
        "() => { const d = window.explorer.decoders[0]; return [...d.superposed([0, 1].map(k => d.half([4, 4], k)))] }"
    )
    assert (torch.tensor(sum_of_halves) - right.detach().flatten() - task.background).abs().max() < 1e-4


def test_views_over_the_plane_are_computed_while_nothing_moves(shown):
    page = shown(address="#at=2,2&beside=-1&stage=1", viewport={"width": 1200, "height": 2400})
    survey = "window.explorer.sides[0].views.survey(window.explorer.state)"
    page.evaluate("window.moving = setInterval(() => window.explorer.set({}), 50)")
    page.wait_for_timeout(500)  # what was asked for before has been answered
    known = page.evaluate(f"{survey}.known")
    page.wait_for_timeout(300)
    assert page.evaluate(f"{survey}.known") == known, "computed while something moves"
    page.evaluate("clearInterval(window.moving)")
    until(page, f"() => {survey}.done")
    until(page, "() => document.querySelector('.views p').hidden")
    captions = page.locator(".views figcaption").all_inner_texts()
    volume = page.evaluate(f"{survey}.volume[22].toFixed(2)").replace("-", "−")
    assert captions[0].startswith(f"log10 dv {volume} here; ")
    assert "the most variable" in captions[1]
    assert captions[2].endswith("along x")
    assert page.locator(".views canvas").first.get_attribute("aria-label").startswith(captions[0])
    charts = "[...document.querySelectorAll('.views canvas')].map((canvas) => canvas.toDataURL())"
    before = page.evaluate(charts)
    page.locator("#unit").fill("1")
    page.keyboard.press("Tab")
    until(page, "() => document.querySelectorAll('.views figcaption')[1].textContent.startsWith('unit 1,')")
    page.locator("#plane").focus()
    page.keyboard.press("ArrowRight")
    until(page, "() => window.explorer.state.at[0] === 3")
    until(page, f"() => {charts}.every((chart, number) => chart !== {json.dumps(before)}[number])")


def test_reduced_motion_goes_step_by_step(shown):
    page = shown(address="#at=5,2", reduced_motion="reduce")
    page.locator("#play").click()
    first = page.evaluate("window.explorer.state.at")
    page.wait_for_timeout(300)
    assert page.evaluate("window.explorer.state.at") == first == [1, 1]


def test_hostile_names_stay_text(shown, tmp_path):
    decoders = {name: nn.Linear(3, 9) for name in (HOSTILE[1], "".join(HOSTILE) + "\u0000\u2028")}
    path = rc.explore(decoders, "x=0:2,y=0:2,z=0:2", title="".join(HOSTILE[:3])).save(tmp_path / "page.html")
    assert not re.search("<img|alert\\(2\\)</script>", path.read_text())
    page = shown(path)
    assert page.locator("h1").inner_text().startswith("<img src=x onerror=alert(1)>")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 5
    for number, name in enumerate(decoders):
        page.locator("#decoder").select_option(index=number)
        assert page.locator(".side h2").first.text_content() == name
        assert overflow(page) <= 0


def test_hostile_values_of_data_stay_text(shown, tmp_path):
    values = [*HOSTILE[:3], "\u202eright to left", HOSTILE[4]]
    factors = {"shape": [value for value in values for _ in range(2)], "x": [0, 1] * len(values)}
    task = rc.ArrayTask(np.zeros((10, 3, 3), dtype=np.uint8), factors, holdout="mask:points=0,0")
    path = rc.explore(nn.Linear(2, 9), data=task, encode=lambda values: values).save(tmp_path / "page.html")
    page = shown(path)
    for position, label in enumerate(task.levels["shape"]):
        page.evaluate("k => window.explorer.set({at: [k, 1]})", position)
        shown = page.locator("#factor0").get_attribute("aria-valuetext")
        assert shown == (label if len(label) <= 24 else label[:23] + "…")
        assert page.locator("output").first.text_content() == shown
    assert page.locator("img").count() == 0
    assert overflow(page) <= 0


def test_the_policy_refuses_what_is_not_the_pages_own(browser, saved):
    page = browser.new_context(offline=True).new_page()
    page.goto(saved.as_uri())
    assert page.evaluate(ATTEMPTS) == []


@pytest.fixture(scope="module")
def widest(tmp_path_factory):
    """The widest decoder shipped: the paper's CNN, 64 channels, depth 4, 28 × 28."""
    spec = rc.RunSpec(task=rc.BumpTask(size=28), decoder=rc.CNN(width=64, depth=4))
    task = spec.task
    settings = {"encode": task.encoding, "holdout": task.held_out, "targets": task.render}
    return rc.explore(spec.module(), task.grid, **settings).save(tmp_path_factory.mktemp("widest") / "page.html")


@pytest.mark.slow
def test_a_frame_of_the_widest_decoder_takes_a_thirtieth_of_a_second(shown, widest):
    page = shown(widest, address="#stage=2")
    measured = page.context.new_cdp_session(page)
    measured.send("Performance.enable", {"timeDomain": "threadTicks"})  # of the processor: others may be busy too
    page.wait_for_timeout(500)

    def spent():
        return {m["name"]: m["value"] for m in measured.send("Performance.getMetrics")["metrics"]}["TaskDuration"]

    before = spent()
    page.evaluate(DRAG)
    assert (spent() - before) / 60 < 1 / 30


DRAG = """() => new Promise((done) => {
  let frames = 0;
  const next = () => {
    frames += 1;
    if (frames > 60) return done();
    window.explorer.set({ at: [frames % 28, (3 * frames) % 28] });
    requestAnimationFrame(next);
  };
  next();
})"""


@needs_axe
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 400)])
def test_axe_finds_no_fault(browser, saved, scheme, width):
    viewport = {"width": width, "height": 4000}
    assert faults(browser, saved, SURVEYED, color_scheme=scheme, viewport=viewport) == []


NOTEBOOK = """([script, html]) => {
  const model = {
    values: { html, height: 600, address: '#at=2,1' }, listeners: [], saved: 0,
    get(name) { return this.values[name] },
    set(name, value) { this.values[name] = value },
    save_changes() { this.saved += 1 },
    on(event, listener) { this.listeners.push(listener) },
    off(event, listener) { this.listeners = this.listeners.filter((own) => own !== listener) },
    change(address) { this.values.address = address; this.listeners.forEach((listener) => listener()) },
  };
  window.model = model;
  return import(URL.createObjectURL(new Blob([script], { type: 'text/javascript' }))).then((module) => {
    window.remove = module.default.render({ model, el: document.body });
  });
}"""
STRICT = "<meta http-equiv='Content-Security-Policy' content=\"require-trusted-types-for 'script'\">"


@pytest.mark.parametrize("head", ["", STRICT], ids=["plain", "trusted types"])
def test_the_widget_runs_the_page_in_a_frame_and_shares_its_view(browser, head):
    html = rc.explore(nn.Linear(2, 9), "x=0:2,y=0:2", title="within").html
    page = browser.new_context(offline=True).new_page()
    trouble = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.set_content(f"<!doctype html>{head}<title>notebook</title>")
    page.evaluate(NOTEBOOK, [(files("recombine.page") / "widget.js").read_text(), html])
    frame = page.frame_locator("iframe")
    until(page, "() => window.model.values.address.startsWith('#at=2,1&')")
    assert frame.locator("h1").inner_text() == "within"
    assert frame.locator("#factor0").input_value() == "2"  # the view that the notebook had
    frame.locator("#plane").focus()
    page.keyboard.press("ArrowDown")
    until(page, "() => window.model.values.address.startsWith('#at=2,2')")
    page.evaluate("window.model.change('#at=0,0')")
    until(page, "() => window.model.values.address.startsWith('#at=0,0&')")
    assert frame.locator("#factor1").input_value() == "0"
    page.evaluate("window.remove()")
    assert page.evaluate("window.model.listeners.length") == 0
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    assert trouble == []
    page.context.close()
