"""The report in a real browser, from disk, with the network off."""

import os
import shutil

import numpy as np
import pytest
import xarray

from recombine.report import write_report
from recombine.studies import STUDIES

pytestmark = pytest.mark.browser
NAMES = ["bump", "rate"]


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    chance = np.random.default_rng(0)
    size, seeds, samples = 10, 3, 4
    held_out = np.zeros((size, size), dtype=bool)
    held_out[3:7, 3:7] = True
    scores = {
        n: (("encoding", "seed"), chance.random((2, seeds))) for n in ("id_over_blank", "id_accuracy", "ood_over_blank")
    }
    result = xarray.Dataset(
        {
            **scores,
            "error": (("encoding", "seed", "y", "x"), chance.random((2, seeds, size, size)) * 0.004),
            "drawing": (
                ("encoding", "seed", "sample", "row", "column"),
                chance.random((2, seeds, samples, size, size)),
            ),
            "held_out": (("y", "x"), held_out),
            "sample_x": ("sample", [4, 5, 4, 5]),
            "sample_y": ("sample", [4, 4, 5, 5]),
        },
        coords={"encoding": NAMES, "seed": range(seeds), "x": range(size), "y": range(size)},
        attrs={"polarity": "bright", "blank": 0.004},
    )
    out = tmp_path_factory.mktemp("report")
    study = STUDIES["encodings"]
    return write_report(
        out, "quick", {"encodings": result}, {"encodings": study.question}, study.judge(result), {"torch": "1"}, 6
    )


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium")
    if found is None and "CI" not in os.environ:
        pytest.skip("Chromium is not installed; continuous integration has it")
    assert found, "browser tests need Chromium; .ci/run installs Debian's"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=found,
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
    assert page.locator("#verdicts tr").count() == 2
    assert page.locator("#verdicts").inner_text().count("C1") == 1
    assert page.locator("figure img").evaluate("image => image.complete && image.naturalWidth > 300")
    assert page.locator("figcaption").inner_text().startswith("Mean squared error")
    for name in NAMES:
        assert page.get_by_role("cell", name=name, exact=True).is_visible()
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, "the page scrolls sideways"
    assert trouble == []
