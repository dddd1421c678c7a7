"""The widget's script in a real browser: the page in its frame, and the view that both sides share."""

from importlib.resources import files

import pytest
from torch import nn

import recombine as rc

pytestmark = pytest.mark.browser

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


@pytest.fixture(scope="module")
def html(browser):
    return rc.explore(nn.Linear(2, 9), "x=0:2,y=0:2", title="within").html


@pytest.mark.parametrize("head", ["", STRICT], ids=["plain", "trusted types"])
def test_the_page_runs_in_a_frame_and_shares_its_view(browser, html, head):
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


def until(page, condition):
    page.wait_for_function(condition, timeout=10_000)
