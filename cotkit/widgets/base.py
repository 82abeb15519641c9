"""What every widget is: a view that lives in Jupyter, and the same as plain HTML anywhere else.

A subclass keeps its state in plain attributes that a test can reach without a browser, makes its controls in
`build()`, puts the state into them in `draw()`, and says in `static()` what a saved notebook or a report
shows. A headless run (COTKIT_REPORT) gets the HTML alone.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from cotkit.shown import VERBATIM, mended
from cotkit.shown import escaped as text

STYLE = """<style>
.cotkit-widget,.cotkit-widget .widget-html-content{font-size:var(--jp-ui-font-size1,14px);line-height:1.45}
.cotkit-widget .mod-success{background:#00694a;color:#fff}
.cotkit-widget .jupyter-button:focus-visible,.cotkit-widget .noUi-handle:focus-visible,
.cotkit-widget select:focus-visible,.cotkit-widget input:focus-visible,
.cotkit-widget textarea:focus-visible{outline:2px solid #0072B2!important;outline-offset:1px}
.ck-facts{display:flex;flex-wrap:wrap;gap:4px 24px;margin:4px 0}
.ck-facts b{font-variant-numeric:tabular-nums}
.ck-quiet{opacity:.75}
.ck-words{white-space:pre-wrap;overflow-wrap:anywhere;max-width:60em;margin:6px 0}
.cotkit-widget ins,.ck-static ins{background:rgba(0,158,115,.22);text-decoration:underline}
.cotkit-widget del,.ck-static del{background:rgba(213,94,0,.2)}
table.ck{border-collapse:collapse;margin:8px 0}
table.ck td,table.ck th{padding:2px 12px 2px 0;text-align:left;
  border-bottom:1px solid var(--jp-border-color2,rgba(128,128,128,.35));vertical-align:top}
.ck-share{display:inline-block;position:relative;width:8em;height:1em;vertical-align:-.1em;background:rgba(128,128,128,.2)}
.ck-share i{position:absolute;top:.35em;height:.3em;background:currentColor;opacity:.5}
.ck-share b{position:absolute;top:0;height:1em;width:3px;margin-left:-1px;background:currentColor}
.ck-done{display:flex;height:10px;max-width:720px;border-radius:5px;overflow:hidden;
  background:rgba(128,128,128,.3);margin:4px 0}
.ck-map{max-width:100%;height:auto;border:1px solid rgba(128,128,128,.4)}
.ck-map g:focus{outline:none}.ck-map .ck-ring{fill:none;stroke:currentColor;stroke-width:1.5}
.ck-map g:focus .ck-ring{stroke-width:4}
.ck-map text{display:none;fill:currentColor;font-size:13px}
.ck-map g:hover text,.ck-map g:focus text{display:block}
.ck-columns{display:flex;flex-wrap:wrap;gap:8px 24px}.ck-columns>div{flex:1 1 14em;min-width:0}
</style>"""


class Widget:
    """`display(widget)`, or the last line of a cell, shows it."""

    _view: Any = None
    _drawing = False  # while controls are made to follow the state, they ask for nothing

    @property
    def view(self) -> Any:
        """The ipywidgets view, made when first asked for."""
        if self._view is None:
            import ipywidgets

            self._fault = ipywidgets.HTML()
            self._view = ipywidgets.VBox([ipywidgets.HTML(STYLE), self._fault, *self.build()])
            self._view.add_class("cotkit-widget")
            self.redraw()
        return self._view

    def build(self) -> list[Any]:
        """The controls, from top to bottom."""
        raise NotImplementedError

    def draw(self) -> None:
        """Puts the present state into the controls."""
        raise NotImplementedError

    def static(self) -> str:
        """HTML of the present state."""
        raise NotImplementedError

    def redraw(self) -> None:
        """After a change of the state; does nothing where no view was asked for. What cannot be drawn is said
        in the view, and its controls go on."""
        if self._view is None:
            return
        self._drawing, self._fault.value = True, ""
        try:
            self.draw()
        except Exception as error:
            why = text(f"{type(error).__name__}: {error}")
            self._fault.value = f"<div role='alert'>not drawn: {why}</div>"
            raise
        finally:
            self._drawing = False

    def heed(self, control: Any, action: Callable[[Any], None]) -> None:
        """Calls `action` with what a person sets `control` to."""
        control.observe(lambda change: None if self._drawing else action(change["new"]), "value")

    def settle(self) -> None:
        """Before a headless run shows it: waits for what is worth waiting for."""

    def _repr_html_(self) -> str:
        return f'{STYLE}<div class="ck-static">{self.static()}</div>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        headless = bool(os.environ.get("COTKIT_REPORT"))
        if headless:
            self.settle()
        bundle: dict[str, Any] = {"text/plain": mended(repr(self)), "text/html": self._repr_html_()}
        if not headless:
            reference = {"version_major": 2, "version_minor": 0, "model_id": self.view.model_id}
            bundle["application/vnd.jupyter.widget-view+json"] = reference
        return bundle


# Pandoc's rule tells "$x$" from "$5 and $6": no space inside the dollars, no digit behind the last one.
_FORMULA = re.compile(
    r"\$\$.+?\$\$|\$(?![\s$])(?:\\.|[^$\\\n])+?(?<!\s)\$(?!\d)|\\\(.+?\\\)|\\\[.+?\\\]", re.DOTALL
)


def mathematics(words: str) -> str:
    """HTML of a text in which formulas are typeset and prices are not."""
    parts, end = [], 0
    for formula in _FORMULA.finditer(words):
        parts += [_plain(words[end : formula.start()]), text(formula[0])]
        end = formula.end()
    return "".join([*parts, _plain(words[end:])])


def _plain(words: str) -> str:
    return f"<span class='{VERBATIM}'>{text(words)}</span>" if words else ""


def facts(pairs: dict[str, Any]) -> str:
    """Names and values side by side; what is None is left out."""
    shown = (f"<span>{text(k)} <b>{text(v)}</b></span>" for k, v in pairs.items() if v is not None)
    return f'<div class="ck-facts">{"".join(shown)}</div>'


def named(options: Iterable[str | tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The options of a Dropdown, with names that can be sent to a browser."""
    pairs = (option if isinstance(option, tuple) else (option, option) for option in options)
    return [(mended(name), value) for name, value in pairs]


def share_bar(value: float, low: float, high: float) -> str:
    """A share of 0..1 and its interval, drawn; the same must stand beside it in words. "" for nan."""
    if math.isnan(low):
        return ""
    interval = f"<i style='left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%'></i>"
    return (
        f"<span class='ck-share' aria-hidden='true'>{interval}<b style='left:{100 * value:.1f}%'></b></span>"
    )


def button(description: str, action: Any, *, tooltip: str, style: str = "") -> Any:
    """A button that says to screen readers, too, what it does."""
    import ipywidgets

    made = ipywidgets.Button(description=description, tooltip=tooltip, button_style=style)
    made.layout.width = "auto"
    made.on_click(lambda _: action())
    return made
