"""What overlaps, is cut or sticks out in a page, by the boxes of what can be seen."""

SIZES = ((1440, 900), (1024, 768), (820, 1180), (800, 600), (720, 450), (390, 844), (844, 390), (320, 568))
"""Viewports of screens, tablets and phones, upright and turned; 720 × 450 is 1440 × 900 at 200 %."""

FAULTS = """(skipped) => {
  const found = [];
  const described = (own) => `${own.tagName.toLowerCase()}${own.id ? '#' + own.id : ''} ` +
    `"${(own.textContent ?? '').trim().slice(0, 40)}"`;
  const isSeen = (own) => own.checkVisibility({ visibilityProperty: true }) &&
    !own.closest('.unseen, .training-unseen, .skip');
  const scrolls = (own) => own.closest('.wide, details, .training-table') !== null;
  const leaves = [...document.querySelectorAll('h1, h2, h3, p, label, legend, summary, select, button, input, ' +
    'canvas, img, figcaption, output, td, th, li, code')].filter((own) => isSeen(own) && !own.closest(skipped));
  const right = document.documentElement.clientWidth;
  for (const own of leaves) {
    const box = own.getBoundingClientRect();
    if (!scrolls(own) && (box.right > right + 1 || box.left < -1)) found.push(`outside: ${described(own)}`);
    const style = getComputedStyle(own);
    const cut = own.scrollWidth > own.clientWidth + 2 || own.scrollHeight > own.clientHeight + 2;
    if (style.overflow !== 'visible' && !/^(SELECT|INPUT|CANVAS|IMG)$/.test(own.tagName) && cut) {
      found.push(`cut: ${described(own)}`);
    }
    if (own.tagName === 'SELECT') {
      const copy = document.createElement('select');
      copy.append(new Option(own.selectedOptions[0]?.textContent ?? ''));
      Object.assign(copy.style, { position: 'absolute', width: 'max-content' });
      own.parentNode.append(copy);
      if (copy.offsetWidth > own.offsetWidth + 1) found.push(`cut: select ${own.selectedOptions[0].textContent}`);
      copy.remove();
    }
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!parent || !isSeen(parent) || parent.closest(`script, style, noscript, code, option, ${skipped}`)) continue;
    for (const match of node.textContent.matchAll(/[A-Za-z]+/g)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top / 4)));
      if (lines.size > 1) found.push(`broken: ${match[0]} in ${described(parent)}`);
    }
  }
  const boxes = leaves.filter((own) => !scrolls(own)).map((own) => [own, own.getBoundingClientRect()]);
  for (const [k, [one, a]] of boxes.entries()) {
    for (const [other, b] of boxes.slice(k + 1)) {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && tall > 2 && !one.contains(other) && !other.contains(one)) {
        found.push(`overlap: ${described(one)} and ${described(other)}`);
      }
    }
  }
  return [...new Set(found)];
}"""
"""Faults outside the elements that match a selector: what overlaps, is cut, leaves the page or breaks within a word."""
