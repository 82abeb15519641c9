"""The executed notebook as one page: self-contained, without scripts, with nothing fetched from anywhere.

The page opens from a disk with the network off and stays a document: the browser is told to load nothing and
run nothing (Content-Security-Policy), and whatever outputs bring along is taken out before (`safe`). Widgets
are shown by their HTML or text. Code stands behind a fold; the numbers, findings and parameters stand first.
"""

from __future__ import annotations

import base64
import copy
import html
import io
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from cotkit.report import files, views
from cotkit.report.notebooks import project_root
from cotkit.report.parameters import read_parameters
from cotkit.report.screen import SUMMARY

MOSTLY_WHITE = 0.4  # share of white pixels that tells a chart from a photo or a heat map
DARK_INK = 0.91  # grey level of text and lines on the dark page
STREAM_LINES = 200  # printed lines of one output that the page shows; notebook.ipynb has all
_WIDGET = "application/vnd.jupyter.widget-view+json"
_HIDDEN_TAGS = {"parameters", "injected-parameters", "remove-cell"}
_REMOVED = [
    "script", "iframe", "frame", "frameset", "object", "embed", "applet", "link", "meta", "base", "audio",
    "video", "source", "track", "template", "portal", "fencedframe", "noscript", "xmp", "noembed", "noframes",
    "plaintext", "set", "animate", "animatetransform", "animatemotion", "animatecolor", "discard",
]  # fmt: skip
_ADDRESSES = {"src", "href", "xlink:href", "background", "action", "formaction", "cite", "longdesc", "data"}
_FORBIDDEN = {"srcdoc", "srcset", "imagesrcset", "ping", "attributionsrc", "poster", "lowsrc", "dynsrc"}
_FORBIDDEN |= {"xmlns", "xmlns:xlink", "xml:base"}
_STYLED = {"style", "fill", "stroke", "filter", "mask", "clip-path", "cursor"}  # their values are CSS
_STYLED |= {"marker", "marker-start", "marker-mid", "marker-end"}
_NAME = re.compile(r"[a-z_][\w:.-]*", re.IGNORECASE)  # of an attribute
# An address without an end is closed by the end of the style.
_CSS_ADDRESS = re.compile(r"url\(\s*(?!['\"]?\s*(?:data:|#))[^)]*(?:\)|$)|@import[^;]*;?", re.IGNORECASE)
# An escape can spell any word in another way, tags end a style, and these take an address without url().
_CSS_REFUSED = re.compile(r"[\\<]|\b(?:image|image-set|cross-fade|src)\(", re.IGNORECASE)


def render(notebook: Any, record: Mapping[str, Any]) -> str:
    """The page of an executed notebook and its report.json."""
    title, cells, contents = _body(notebook)
    intro = cells.pop(0)["html"] if cells and cells[0]["kind"] == "text" else ""
    return views.fill(
        "report.html.j2",
        title=title or record["title"] or record["notebook"] or "Report",
        intro=intro,
        cells=cells,
        contents=contents,
        record=record,
        glance=views.glance(record),
        parameters=_parameter_rows(notebook, record),
        command=_command(record),
    )


def _body(notebook: Any) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """The title (the first `#` heading), the cells to show, and the headings below the title."""
    title, cells, contents = "", [], []
    for cell in notebook.cells:
        if _HIDDEN_TAGS & set(cell.metadata.get("tags", [])):
            continue
        if cell.cell_type == "markdown":
            soup = _soup(markdown(cell.source, cell.get("attachments")))
            for heading in soup.find_all(re.compile("^h[1-6]$")):
                text = heading.get_text(" ", strip=True)
                if not title and heading.name == "h1":
                    title = text
                    heading.decompose()
                    continue
                heading["id"] = files.unused(files.slug(text, "section"), {entry["id"] for entry in contents})
                contents.append({"id": heading["id"], "text": text, "level": int(heading.name[1])})
            cells.append({"kind": "text", "html": str(soup)})
        elif cell.cell_type == "code" and cell.source.strip():
            outputs = [content for output in _joined(cell.outputs) if (content := _output(output))]
            cells.append(
                {
                    "kind": "code",
                    "code": _highlighted(cell.source),
                    "label": _code_label(cell.source),
                    "outputs": outputs,
                    "ran": cell.execution_count is not None,
                    "failed": any(output.output_type == "error" for output in cell.outputs),
                }
            )
    return title, cells, [entry for entry in contents if entry["level"] <= 3]


def markdown(source: str, attachments: Any = None) -> str:
    """Markdown as safe HTML. Formulas stay LaTeX, in code style: a page without scripts cannot set them."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def inline_math(self, body: str) -> str:
            return f'<code class="math">{html.escape(body.strip())}</code>'

        def block_math(self, body: str) -> str:
            return f'<code class="math block">{html.escape(body.strip())}</code>'

        def latex_environment(self, name: str, body: str) -> str:
            return self.block_math(body)

    renderer = Renderer(
        escape=False,
        embed_images=True,
        exclude_anchor_links=True,
        path=str(project_root() / "notebooks"),
        attachments=attachments,
    )
    return safe(MarkdownWithMath(renderer=renderer).render(source))


def _soup(content: str) -> Any:
    from bs4 import BeautifulSoup

    return BeautifulSoup(content, "html.parser")


def safe(content: str) -> str:
    """HTML without scripts, frames, event handlers and addresses outside the page; tables scroll in a box.

    A link to another site becomes its text (the address in its tooltip), a picture that is not embedded its
    description. Comments and the like go, for browsers end them elsewhere than a parser may.
    """
    from bs4.element import PreformattedString

    soup = _soup(content)
    for hidden in soup.find_all(string=lambda text: isinstance(text, PreformattedString)):
        hidden.extract()
    for tag in soup.find_all(_REMOVED):
        tag.decompose()
    for tag in soup.find_all(True):
        if tag.name == "style":
            css = tag.get_text()
            if tag.has_attr("scoped") or _CSS_REFUSED.search(css):  # scoped: pandas' own; the page has its
                tag.decompose()
                continue
            tag.string = _CSS_ADDRESS.sub(" none ", css)  # or what stands round it would meet
        _clean_attributes(tag)
        if tag.name == "img" and not tag.get("src"):
            tag.replace_with(f"[picture: {tag.get('alt') or 'not embedded'}]")
        elif tag.name == "a" and not tag.get("href"):
            tag.name = "span"
    for image in soup.find_all("img"):
        _add_dark_twin(image)
    for tag in soup.find_all("table"):
        if not tag.find_parent(class_="ck-scroll") and not tag.find_parent("table"):
            tag.wrap(
                soup.new_tag(
                    "div",
                    attrs={"class": "ck-scroll", "tabindex": "0", "role": "region", "aria-label": "table"},
                )
            )
    return str(soup)


def _clean_attributes(tag: Any) -> None:
    for name in list(tag.attrs):
        value, known = tag.attrs[name], name.lower()
        text = " ".join(value) if isinstance(value, list) else str(value)
        if known.startswith("on") or known in _FORBIDDEN or not _NAME.fullmatch(name):
            del tag.attrs[name]
        elif known in _ADDRESSES and not _stays_inside(tag.name, text):
            del tag.attrs[name]
            if tag.name == "a" and re.match(r"\s*https?:", text):
                tag.attrs["title"] = text
        elif known in _STYLED and _CSS_REFUSED.search(text):
            del tag.attrs[name]
        elif known in _STYLED:
            tag.attrs[name] = _CSS_ADDRESS.sub("none", text)


def _stays_inside(tag: str, address: str) -> bool:
    """True for an embedded picture, a place on the page, or, of a link, a file beside it."""
    address = re.sub(r"[\s\x00-\x1f]", "", address).lower()
    if tag in ("img", "image"):
        return address.startswith(("data:image/", "#"))
    return address.startswith("#") or (tag == "a" and not re.match(r"[a-z][a-z0-9+.-]*:|[/\\]{2}", address))


def _joined(outputs: list[Any]) -> list[Any]:
    """Outputs, with what was printed in pieces put together."""
    result: list[Any] = []
    for output in outputs:
        last = result[-1] if result else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            result[-1] = type(output)(last, text=last.text + output.text)
        else:
            result.append(output)
    return result


def _output(output: Any) -> str:
    """One output as HTML; "" for one that is not shown."""
    if output.output_type == "stream":
        text = _capped(views.plain_text(output.text))
        if not text.strip():
            return ""
        if output.name == "stderr":
            folded = f"<summary>Messages</summary><pre>{html.escape(text)}</pre>"
            return f'<details class="messages">{folded}</details>'
        return f'<pre class="printed">{html.escape(text)}</pre>'
    if output.output_type == "error":
        return f'<pre class="traceback">{html.escape(views.plain_text(chr(10).join(output.traceback)))}</pre>'
    if output.metadata.get("cotkit") == SUMMARY["cotkit"]:
        return ""
    return _data(output.data, output.metadata)


def _data(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    if "text/html" in data:
        return safe(_text(data["text/html"]).replace(views.style(), ""))
    if "image/svg+xml" in data:
        return _picture("image/svg+xml", base64.b64encode(_text(data["image/svg+xml"]).encode()).decode(), {})
    for kind in ("image/png", "image/jpeg", "image/gif"):
        if kind in data:
            return _picture(kind, "".join(_text(data[kind]).split()), metadata.get(kind, {}))
    if "text/markdown" in data:
        return markdown(_text(data["text/markdown"]))
    if "text/latex" in data:
        return f'<code class="math block">{html.escape(_text(data["text/latex"]))}</code>'
    text = _text(data.get("text/plain", ""))
    if _WIDGET in data:
        shown = html.escape(text if len(text) <= 300 else text[:300] + " ...") or "widget"
        return f'<p class="widget">A control to use in JupyterLab: <code>{shown}</code></p>'
    if not text and "application/json" in data:
        text = json.dumps(data["application/json"], indent=1, ensure_ascii=False)
    return f'<pre class="printed">{html.escape(_capped(text))}</pre>' if text.strip() else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "".join(value)


def _picture(kind: str, data: str, size: Mapping[str, Any]) -> str:
    width = f' width="{int(size["width"])}"' if str(size.get("width", "")).isdigit() else ""
    return safe(
        f'<figure class="ck-figure"><img alt="figure"{width} src="data:{kind};base64,{data}"></figure>'
    )


def _add_dark_twin(image: Any) -> None:
    """Put a figure for the dark page beside an embedded PNG; the style sheet shows one of the two."""
    head, _, data = image.get("src", "").partition(",")
    if head != "data:image/png;base64":
        return
    try:
        twin = dark_twin(base64.b64decode(data))
    except (ValueError, OSError):  # no picture after all
        return
    if twin is None:
        return
    other = copy.copy(image)
    other["src"] = f"{head},{base64.b64encode(twin).decode()}"
    image["class"], other["class"] = "light", "dark"
    image.insert_after(other)


def dark_twin(png: bytes) -> bytes | None:
    """A chart on white redrawn for a dark ground: white turns transparent, black and grey ink turns light,
    colours stay. None for a picture that is not mostly white, which had better stay as it is.

    A pixel is taken as ink over white, `ink * alpha + white * (1 - alpha)` with the least possible alpha, so
    that smoothed edges come out right on the other ground.
    """
    import numpy as np
    from PIL import Image

    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=np.float32) / 255
    alpha = 1 - picture.min(axis=2)
    if (alpha < 0.02).mean() < MOSTLY_WHITE:
        return None
    ink = (picture - (1 - alpha[..., None])) / np.maximum(alpha[..., None], 1e-3)
    colourful = np.clip((ink.max(axis=2) - 0.12) / 0.2, 0, 1)[..., None]
    ink = ink * colourful + DARK_INK * (1 - colourful)
    pixels = np.dstack([ink, alpha]).clip(0, 1)
    twin = Image.fromarray((255 * pixels).round().astype(np.uint8), "RGBA")
    buffer = io.BytesIO()
    twin.quantize(256, method=Image.Quantize.FASTOCTREE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _capped(text: str) -> str:
    """Lines as a terminal leaves them (after carriage returns), the middle of many left out."""
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    if len(lines) > STREAM_LINES:
        half = STREAM_LINES // 2
        left_out = len(lines) - 2 * half
        lines = [
            *lines[:half],
            f"... {left_out:,} lines left out (all are in notebook.ipynb) ...",
            *lines[-half:],
        ]
    return "\n".join(line if len(line) <= 2000 else line[:2000] + " ..." for line in lines).strip("\n")


def _highlighted(source: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return highlight(source, PythonLexer(), HtmlFormatter(nowrap=True))


def _code_label(source: str) -> str:
    first = source.strip().splitlines()[0]
    return first.lstrip("# ") if first.startswith("#") else ""


def _parameter_rows(notebook: Any, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the notebook ran with; a value that was given differs in look from a default."""
    try:
        known = {parameter.name: parameter.comment for parameter in read_parameters(notebook)}
    except ValueError:
        known = {}
    return [
        {
            "name": name,
            "value": views.parameter(value),
            "comment": known.get(name, ""),
            "given": name in record["given"],
        }
        for name, value in record["parameters"].items()
    ]


def _value_text(value: Any) -> str:
    """A parameter's value as the command line takes it."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _command(record: Mapping[str, Any]) -> str:
    """The command line that runs the notebook again with the same parameters."""
    if not record["notebook"]:
        return ""
    values = {name: record["parameters"].get(name) for name in record["given"]}
    given = [f"-p {shlex.quote(f'{name}={_value_text(value)}')}" for name, value in values.items()]
    return " ".join(["cotkit run", record["notebook"], *given])
