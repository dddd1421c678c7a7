"""The report in a real browser, from disk, with the network off."""

import base64
import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import recombine as rc
from recombine.cli.reproduce import written
from recombine.page import report_explorer
from recombine.papers.forced_rendering import PAPER
from recombine.reproduction.claims import Judgement, Test
from recombine.reproduction.explorer import KeptDecoder, kept_decoders, packed
from recombine.reproduction.figures import FigureSpec, Section
from recombine.reproduction.intervals import Interval
from recombine.reproduction.paper import Findings
from recombine.reproduction.reporting import LARGEST_PAGE, MISSING, DrawnFigure
from recombine.reproduction.reporting import page as page_of
from recombine.reproduction.results import EXPLORER, Results
from tests.browser.boxes import FAULTS, SIZES
from tests.browser.conftest import ATTEMPTS, HOSTILE, faults, needs_axe, overflow, until
from tests.golden import PICTURES, RESULTS

pytestmark = pytest.mark.browser

SHOWN = ("fig1", "fig9", "width")
DEFAULT = replace(
    PAPER, figures={name: PAPER.figures[name] for name in SHOWN},
    sections=tuple(replace(one, figures=tuple(n for n in one.figures if n in SHOWN)) for one in PAPER.sections),
)  # fmt: skip
"""The paper with few of its figures: other tests draw them."""
LABELS = (("bump", "none"), ("bump", "stripes"), ("rate", "none"))


def kept(labels):
    """Untrained decoders with labels, one after another."""
    task = rc.BumpTask(size=8, encoding="bump")
    specs = [rc.RunSpec(task=task, decoder=rc.MLP(width=8, depth=1), seed=seed) for seed in range(len(labels))]
    return [
        KeptDecoder("encodings", f"key{number}", spec, own, _weights(spec), {})
        for number, (spec, own) in enumerate(zip(specs, labels, strict=True))
    ]


def _weights(spec):
    return {name: tensor.numpy() for name, tensor in spec.module().state_dict().items()}


def judged(claims, *args):
    """A verdict on each claim as `judge` gives it, at no cost: other tests judge the golden results."""
    interval = Interval(0.3, 0.2, 0.4, 3)
    tests = [Test(case, "difference", "above 0", "yes", interval, 3, 3) for case in ("bump", "rate")]
    return [
        Judgement(own.name, own.text, own.where, "yes", None, tests, tests, tests[:1], ours=own.ours) for own in claims
    ]


LARGE = b" " * 10**7
"""An SVG that is larger than any PNG, which the page then shows."""


@pytest.fixture(scope="module")
def page_path(browser, tmp_path_factory):
    """A page with an explorer and all figures, as they are kept for comparison: other tests draw them."""
    out = tmp_path_factory.mktemp("report") / "out"
    shutil.copytree(RESULTS, out)
    results = Results(out)
    results.note(preset={"name": "tiny", "seeds": 3, "depths": [2, 3]}, runs=116)
    labels = [dict(zip(("code", "remedy"), own, strict=True)) for own in LABELS]
    results.digests.replace({EXPLORER: packed(kept(labels))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Findings, "draw", lambda findings, spec: (PICTURES / f"{spec.name}.png").read_bytes())
        patch.setattr("recombine.reproduction.paper.judge", judged)
        patch.setattr("recombine.reproduction.reporting.rendered", lambda png: {"png": png, "svg": LARGE})
        return written(Findings(DEFAULT, Results.existing(out)))


def small_page(folder, text, panels=None):
    """A page with one figure, of which everything that can be a text of a user's is this text."""
    image = base64.b64encode((PICTURES / "width.png").read_bytes()).decode()
    spec = FigureSpec("fig1", text, ("encodings",), lambda data: None, lambda data: text)
    html = page_of(
        title=text, source=text, question=text, preset={"name": text, text: text}, provenance={"commit": text},
        judgements=[], figures=[DrawnFigure(spec, text, "png", image)],
        sections=[Section("question", text, text), Section("fails", text, text, ("fig1",))], panels=panels,
        downloads={"encodings": None}, data_folder="data", missing=MISSING,
    )  # fmt: skip
    path = folder / f"{HOSTILE[2]}#?%.html".replace("/", "")
    path.write_text(html)
    return path


STARTED = "() => window.explorer && window.explorer.sides.every(side => side.shown !== null)"


def test_page_shows_verdicts_and_figure(page_path, opened):
    page = opened(page_path)
    ordered = sorted(DEFAULT.claims.values(), key=lambda claim: claim.ours)  # the paper's claims come first
    assert page.locator("#verdicts td:first-child > strong").all_inner_texts() == [claim.name for claim in ordered]
    assert page.locator("#verdicts th[scope=rowgroup]").count() == len({claim.ours for claim in ordered})
    images = page.locator("figure img")
    assert images.count() == len(DEFAULT.figures)
    for index in range(images.count()):
        images.nth(index).scroll_into_view_if_needed()
        assert images.nth(index).evaluate("image => image.decode().then(() => image.naturalWidth > 100)")
    assert all(len(text) > 80 for text in page.locator(".figure figcaption").all_inner_texts())
    case = page.locator("#verdicts details").first
    assert not case.locator("table").is_visible()
    case.locator("summary").click()
    assert case.locator("table").is_visible()
    assert page.locator("#settings .wide").inner_text().count("preset: depths") == 1
    assert overflow(page) <= 0
    assert page_path.stat().st_size < LARGEST_PAGE


def test_nothing_overlaps_or_is_cut(page_path, opened):
    page = opened(page_path)
    until(page, STARTED)
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for top in (0, 500):
            page.evaluate("top => scrollTo(0, top)", top)
            page.wait_for_timeout(50)
            sticks = page.locator("#plane").evaluate("own => getComputedStyle(own).position === 'sticky'")
            assert page.evaluate(FAULTS, "#plane" if sticks else ":not(*)") == [], (width, height)
        assert overflow(page) <= 0
        assert page.locator("#judged .wide").first.evaluate("own => own.scrollWidth - own.clientWidth") <= 0


def test_what_scrolls_behind_the_plane_is_covered_on_a_phone(page_path, opened):
    page = opened(page_path, viewport={"width": 390, "height": 844})
    until(page, STARTED)
    page.evaluate("scrollBy(0, document.getElementById('plane').getBoundingClientRect().top + 200)")
    page.wait_for_timeout(100)
    box = page.locator("#plane").bounding_box()
    assert box["y"] == 0
    strip = {"x": 0, "y": 0, "width": box["x"] - 1, "height": box["height"]}
    content = page.screenshot(clip=strip)
    assert len(Image.open(io.BytesIO(content)).convert("RGB").getcolors()) == 1


def test_the_explorer_is_the_first_thing_by_keyboard(page_path, opened):
    page = opened(page_path)
    until(page, STARTED)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "plane"


def test_without_a_script_figures_and_verdicts_are_shown(page_path, browser):
    page = browser.new_context(offline=True, java_script_enabled=False).new_page()
    page.goto(page_path.as_uri())
    assert page.locator("noscript").first.inner_text().startswith("The explorer needs JavaScript. It shows 3 decoders")
    for hidden in (".explorer", "button.download", "#training"):
        assert not any(own.is_visible() for own in page.locator(hidden).all())
    assert page.locator("#verdict-C1").is_visible()
    assert page.locator(".figure img").first.is_visible()
    page.context.close()


def test_print_has_no_controls_and_few_pages(page_path, opened):
    page = opened(page_path)
    until(page, STARTED)
    until(page, "() => [...document.images].every((image) => image.complete && image.loading === 'eager')")
    pages = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert pages <= 15
    page.emulate_media(media="print")
    controls = page.locator("button, select, input, summary, canvas[tabindex]")
    assert not any(own.is_visible() for own in controls.all())
    assert page.locator(".figure img").count() == len(DEFAULT.figures)


def test_forced_colours_keep_the_key(page_path, opened):
    page = opened(page_path, forced_colors="active")
    until(page, STARTED)
    key = page.locator(".key.held")  # a frame, as the plane shows errors
    assert key.evaluate("own => getComputedStyle(own).borderColor") == "rgb(34, 34, 34)"
    assert "gradient" in page.locator(".key.errors").evaluate("own => getComputedStyle(own).backgroundImage")


def test_sections_follow_the_argument(page_path, opened):
    page = opened(page_path)
    page.locator("nav summary").click()
    links = page.locator("nav a")
    assert links.all_inner_texts() == [
        *(section.title for section in DEFAULT.sections), "Verdicts", "Settings and provenance", "Data",
    ]  # fmt: skip
    for section in DEFAULT.sections[1:]:
        part = page.locator(f"#part-{section.name}")
        assert part.locator("p.text").inner_text() == section.text
        assert part.locator(".claims strong").all_inner_texts() == list(section.claims)
        assert part.locator("figure[id]").evaluate_all("all => all.map(own => own.id)") == list(section.figures)
    until(page, STARTED)
    assert page.evaluate("document.querySelector('main').firstElementChild.querySelector('#plane') !== null")


def test_switches_by_keyboard_and_in_the_address(page_path, opened):
    page = opened(page_path, "#decoder=0&beside=-1")
    until(page, STARTED)
    assert page.locator("#models").is_hidden()
    page.locator("#switch-1").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("window.explorer.state.decoder") == 1
    assert page.locator(".side h2").inner_text() == "code bump · remedy stripes"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowDown")  # a rate code, of which there is none with stripes
    assert page.evaluate("window.explorer.state.decoder") == 2
    assert (
        page.locator(".switch p").first.inner_text()
        == "These settings are not available with code rate: remedy is now none."
    )
    assert page.locator("#switch-1").evaluate("list => list.selectedOptions[0].textContent") == "none"
    page.locator("#compare").focus()
    page.keyboard.press("Space")
    until(page, "() => location.hash.includes('beside=0')")
    again = opened(page_path, page.evaluate("location.hash"))
    until(again, STARTED)
    assert again.locator(".side h2").all_inner_texts() == ["code rate · remedy none", "code bump · remedy none"]
    assert again.locator("#beside-switch-0").evaluate("list => list.selectedOptions[0].textContent") == "bump"


def test_a_section_and_the_view_are_separate_in_the_address(page_path, opened):
    page = opened(page_path, "#section=judged&at=1,2")
    until(page, STARTED)
    until(page, "() => Math.abs(document.getElementById('judged').getBoundingClientRect().top) < 40")
    until(page, "() => location.hash.startsWith('#section=judged&at=1,2&')")
    page.locator("#plane").focus()
    page.keyboard.press("ArrowRight")
    until(page, "() => location.hash.startsWith('#section=judged&at=2,2&')")
    page.evaluate("document.querySelector('a[href=\"#settings\"]').click()")
    until(page, "() => location.hash.startsWith('#section=settings&at=2,2&')")
    assert page.evaluate("window.explorer.state.at") == [2, 2]
    page.go_back()
    until(page, "() => location.hash.startsWith('#section=judged&at=2,2&')")


def test_a_step_of_the_tour_switches_to_a_decoder_that_fails(page_path, opened):
    page = opened(page_path, "#at=1,1&decoder=1&tour=2")
    until(page, STARTED)
    page.locator("#tour button", has_text="One that fails").click()
    assert page.locator(".side h2").all_inner_texts() == ["code bump · remedy none"]
    assert page.evaluate("window.explorer.state.at.join()") == page.evaluate("window.explorer.data.start.join()")


def test_data_of_a_figure_are_in_the_page(page_path, opened, tmp_path):
    page = opened(page_path)
    with page.expect_download() as download:
        page.locator("#fig9 button.download").click()
    assert download.value.suggested_filename == "rotation.nc"
    download.value.save_as(tmp_path / "rotation.nc")
    assert (tmp_path / "rotation.nc").read_bytes() == (page_path.parent / "data" / "rotation.nc").read_bytes()


def test_hostile_texts_stay_text(opened, tmp_path):
    everything = "".join(HOSTILE)
    labels = [{HOSTILE[0]: HOSTILE[1], "remedy": everything}, {HOSTILE[0]: HOSTILE[2], "remedy": HOSTILE[3]}]
    results = Results(tmp_path)
    results.digests.replace({EXPLORER: packed(kept(labels))})
    path = small_page(tmp_path, everything, {"question": report_explorer(results)})
    assert not re.search("<img src=x|<script>alert", path.read_text())
    page = opened(path)
    until(page, STARTED)
    assert page.locator("img[src=x]").count() == 0
    assert page.locator(".figure figcaption").text_content() == everything
    assert page.locator("#settings code").all_text_contents() == [everything, everything]
    assert page.locator("#switch-0").evaluate("list => list.options[0].textContent") == f"{HOSTILE[1]}"
    assert overflow(page) <= 0


def test_the_policy_refuses_what_is_not_the_pages_own(page_path, browser):
    page = browser.new_context(offline=True).new_page()
    page.goto(page_path.as_uri())
    assert page.evaluate(ATTEMPTS) == []


def test_without_decoders_the_page_says_how_to_get_them(opened, tmp_path):
    page = opened(small_page(tmp_path, "text"))
    assert "recombine report DIR --store STORE" in page.locator("#part-question").inner_text()
    assert page.locator("#plane").count() == 0


@needs_axe
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_fault(browser, page_path, scheme):
    assert faults(browser, page_path, STARTED, color_scheme=scheme) == []


@pytest.mark.slow
def test_every_decoder_that_is_shipped_equals_torch(browser, tmp_path):
    """At 200 random points of the grid, held-out ones among them; weights are rounded where they are kept."""
    results = Results(Path(__file__).parents[2] / "results" / "paper")
    decoders = kept_decoders(results)
    assert {own.labels["remedy"] for own in decoders} >= {"none", "stripes and 100 bumps", "both penalties"}
    page = browser.new_page()
    page.goto(small_page(tmp_path, "shipped", {"question": report_explorer(results)}).as_uri())
    page.wait_for_function("() => window.explorer")
    for place, own in enumerate(decoders):
        task, chance = own.spec.task, torch.Generator().manual_seed(place)
        drawn = torch.randint(task.grid.size, (200,), generator=chance)
        assert task.held_out[drawn].any()
        ours = page.evaluate(
            "([k, all]) => all.map(at => [...window.explorer.decoders[k].output(at)])",
            [place, task.grid.positions(drawn).tolist()],
        )
        with torch.no_grad():
            right = own.module()(task.codes(task.grid.rows(drawn)).float()).flatten(1)
        assert (torch.tensor(ours) - right).abs().max() < 1e-5, own.name
