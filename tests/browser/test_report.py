"""The report in a real browser, from disk, with the network off."""

import os
import shutil

import pytest

from recombine.cli.reproduce import written
from recombine.papers import DEFAULT
from recombine.reproduction.findings import Findings
from recombine.reproduction.results import Results
from tests.golden import PICTURES, RESULTS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_path(browser, tmp_path_factory):
    """A page with all figures, as they are kept for comparison: other tests draw them."""
    out = tmp_path_factory.mktemp("report") / "out"
    shutil.copytree(RESULTS, out)
    Results(out).note(preset={"name": "tiny", "seeds": 3, "depths": [2, 3]}, runs=116)
    with pytest.MonkeyPatch.context() as patch:
        kept = {name: {"png": (PICTURES / f"{name}.png").read_bytes()} for name in DEFAULT.figures}
        patch.setattr("recombine.reproduction.reporting.save_figure", lambda spec, datasets, folder: kept[spec.name])
        return written(Findings(DEFAULT, Results.existing(out)))


@pytest.fixture(scope="module")
def browser():
    """Chromium, before anything is prepared for it: where there is none, tests are skipped at once."""
    chromium = shutil.which("chromium")
    if chromium is None and "CI" not in os.environ:
        pytest.skip("Chromium is not installed; continuous integration has it")
    assert chromium, "browser tests need Chromium; .ci/run installs Debian's"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        yield started
        started.close()


@pytest.mark.parametrize("width", [1200, 420])
def test_page_shows_verdicts_and_figure(page_path, browser, width):
    page = browser.new_context(offline=True, viewport={"width": width, "height": 900}).new_page()
    trouble = []
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("requestfailed", lambda request: trouble.append(request.url))
    page.goto(page_path.as_uri())
    verdicts = page.locator("#verdicts > tbody > tr")
    assert verdicts.count() == 1 + len(DEFAULT.claims)  # a heading and a row per claim
    for number, claim in enumerate(DEFAULT.claims, start=1):
        assert verdicts.nth(number).locator("strong").inner_text() == claim
    images = page.locator("figure img")
    assert images.count() == len(DEFAULT.figures)
    for index in range(images.count()):
        images.nth(index).scroll_into_view_if_needed()
        assert images.nth(index).evaluate("image => image.decode().then(() => image.naturalWidth > 100)")
    assert all(len(text) > 80 for text in page.locator("figcaption").all_inner_texts())
    case = page.locator("#verdicts details").first
    assert not case.locator("table").is_visible()
    case.locator("summary").click()
    assert case.locator("table").is_visible()
    assert page.locator("#settings ~ .wide").inner_text().count("preset: depths") == 1
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, "the page scrolls sideways"
    assert trouble == []
