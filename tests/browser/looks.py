"""What a page looks like, asked in the page: contrast, names of controls, blank and overflowing parts.

Each is JavaScript that takes an element (`locator.evaluate(LOW_CONTRAST)`) and gives a list of faults.
"""

from __future__ import annotations

CONTROLS = "button, select, input, textarea, summary, .noUi-handle, [contenteditable=true], [tabindex='0']"

# WCAG 2.2, 1.4.3: text has 4.5 : 1, large text 3 : 1. Colours are laid over each other from the page upwards.
LOW_CONTRAST = r"""root => {
  const scratch = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const read = css => {
    scratch.clearRect(0, 0, 1, 1);
    scratch.fillStyle = css;
    scratch.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = scratch.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below, alpha) => below.map((x, i) => top[i] * alpha + x * (1 - alpha));
  const light = rgb => rgb.map(x => x / 255).map(x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [.2126, .7152, .0722][i], 0);
  const faults = [];
  for (const node of root.querySelectorAll('*')) {
    const words = [...node.childNodes].filter(c => c.nodeType === 3).map(c => c.textContent).join('').trim();
    if (!words || !node.getClientRects().length) continue;
    if (node.closest(':disabled, title, style, option, mjx-container')) continue;
    const chain = [];
    for (let e = node; e; e = e.parentElement) chain.unshift(e);
    let ground = [255, 255, 255], opacity = 1;
    for (const e of chain) {
      const style = getComputedStyle(e), colour = read(style.backgroundColor);
      opacity *= +style.opacity;
      ground = over(colour, ground, colour[3] * opacity);
    }
    const style = getComputedStyle(node);
    const ink = read(node.namespaceURI.endsWith('svg') ? style.fill : style.color);
    const [a, b] = [light(over(ink, ground, ink[3] * opacity)), light(ground)];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) faults.push(`${ratio.toFixed(2)}: ${words.slice(0, 60)}`);
  }
  return faults;
}"""

UNNAMED = (
    r"""root => [...root.querySelectorAll(`CONTROLS`)].filter(e => e.getClientRects().length).filter(e => {
  const titled = e.closest('[title]:not([title=""])'), drawn = e.querySelector('title');
  const label = e.labels?.[0]?.innerText || e.getAttribute('aria-label') || e.innerText || e.textContent;
  const box = e.matches('.noUi-handle') && e.closest('.widget-hbox')?.querySelector('input[type=number]');
  return !(label?.trim() || drawn || (titled && root.contains(titled)) || box?.labels?.length);
}).map(e => e.outerHTML.slice(0, 200))"""
).replace("CONTROLS", CONTROLS)

# What stands on the page without any content: an output with neither words nor a picture.
BLANK = r"""root => [...root.querySelectorAll('.output, .ck-figure')].filter(e =>
  !e.innerText.trim() && ![...e.querySelectorAll('img, svg')].some(p => p.getBoundingClientRect().width > 20))
  .map(e => e.outerHTML.slice(0, 200))"""

UNLOADED = r"""root => [...root.querySelectorAll('img')].filter(e => e.getClientRects().length)
  .filter(e => !(e.complete && e.naturalWidth > 0)).map(e => e.outerHTML.slice(0, 200))"""

# Wider than the window, the page itself or something in it that no box scrolls.
OVERFLOWING = r"""root => [document.scrollingElement, ...root.querySelectorAll('*')].filter(e => {
  if (e === document.scrollingElement) return e.scrollWidth > window.innerWidth;
  const box = e.getBoundingClientRect();
  const scrolls = x => x && x !== document.body && x !== document.documentElement
    && (/auto|scroll|hidden/.test(getComputedStyle(x).overflowX) || scrolls(x.parentElement));
  return box.width && box.right > window.innerWidth + 1 && !scrolls(e);
}).map(e => e.outerHTML.slice(0, 160))"""

_MARK = "(root, c) => [...root.querySelectorAll(c)].filter(e => e.getClientRects().length && !e.disabled)"


def unreached(page, widget) -> list[str]:
    """Goes through a widget with the Tab key, from its first control on; what was not reached, or shows no
    focus when it is."""
    wanted = widget.evaluate(
        _MARK + ".map((e, i) => (e.dataset.stop = i, e.outerHTML.slice(0, 200)))", CONTROLS
    )
    widget.evaluate(_MARK + "[0].focus()", CONTROLS)
    page.keyboard.press("Shift+Tab")
    faults = dict(enumerate(wanted))
    for _ in range(len(wanted) + 3):
        page.keyboard.press("Tab")
        at, seen = page.evaluate(
            """() => { const e = document.activeElement, style = getComputedStyle(e);
            const ring = e.querySelector('.ck-ring');
            return [e.dataset.stop, style.outlineStyle !== 'none' || style.boxShadow !== 'none'
                || (ring && parseFloat(getComputedStyle(ring).strokeWidth) > 2)] }"""
        )
        if at is not None and seen:
            faults.pop(int(at), None)
    widget.evaluate("root => root.querySelectorAll('[data-stop]').forEach(e => delete e.dataset.stop)")
    return list(faults.values())
