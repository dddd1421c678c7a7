"""Chromium, pages opened in it from disk with the network off, and ways to wait for them."""

import os
import shutil
from pathlib import Path

import pytest

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed (npm ci)")


@pytest.fixture(scope="session")
def browser():
    """Chromium, before anything is prepared for it: where there is none, tests are skipped at once."""
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None and "CI" not in os.environ:
        pytest.skip("Chromium is not installed; continuous integration has it")
    assert chromium, "browser tests need Chromium; .ci/run installs it"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Opens a page, and looks afterwards that it logged nothing and asked for nothing."""
    trouble, contexts = [], []

    def opener(path, address="", **settings):
        contexts.append(browser.new_context(offline=True, **{"viewport": {"width": 1200, "height": 900}, **settings}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        own = (path.as_uri(), "data:image/", "blob:")
        page.on("request", lambda request: None if request.url.startswith(own) else trouble.append(request.url))
        page.goto(path.as_uri() + address)
        until(page, "() => document.readyState === 'complete'")
        return page

    yield opener
    assert trouble == []
    for context in contexts:
        context.close()


def until(page, condition):
    """Waits for something to be true; playwright's own way of waiting is `eval`, which the page's policy forbids."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(condition)


def faults(browser, path, condition, before=None, **settings):
    """What axe finds in a page once something is true."""
    context = browser.new_context(offline=True, bypass_csp=True, **settings)
    page = context.new_page()
    page.goto(path.as_uri())
    if before:
        page.locator(before).click()
    until(page, condition)
    page.evaluate(AXE.read_text() + ";0")
    found = page.evaluate("() => axe.run().then(found => found.violations.map(v => `${v.impact}: ${v.help}`))")
    context.close()
    return found


def overflow(page):
    """Pixels by which a page scrolls sideways."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


ATTEMPTS = """() => new Promise(done => setTimeout(async () => {
  const attempts = {
    eval: () => new Function('return 1')(),
    html: () => { document.body.innerHTML = '<b>x</b>' },
    script: () => new Promise((loaded, refused) => {
      const script = document.createElement('script');
      Object.assign(script, {onload: loaded, onerror: refused});
      script.src = 'data:text/javascript,1';
      document.body.append(script);
    }),
    request: () => fetch('data:text/plain,x'),
  };
  const done_ones = [];
  for (const [name, attempt] of Object.entries(attempts)) {
    try { await attempt(); done_ones.push(name) } catch { /* as it should be */ }
  }
  done(done_ones);
}))"""
"""Things that a page's policy refuses; those that worked are returned."""
HOSTILE = (
    "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "\"'`&lt;{{ 1 }}${alert(3)}",
    "\u202eright to left\u202d", "long " * 2000,
)  # fmt: skip
"""Names and values that a page must show as they are."""
