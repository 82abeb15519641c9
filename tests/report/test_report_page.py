"""The page takes in whatever a notebook holds, and lets nothing out."""

from __future__ import annotations

import base64
import io
import re

import nbformat
import pytest
from ways_out import WAYS_OUT

from cotkit.report import page
from cotkit.report.record import empty_record

V4 = nbformat.v4


def render(*cells, **record) -> str:
    return page.render(V4.new_notebook(cells=list(cells)), {**empty_record(), **record})


def shown(**data) -> str:
    """A cell's output of these types, on the page; `text_html` stands for text/html."""
    types = {kind.replace("_", "/", 1): content for kind, content in data.items()}
    output = V4.new_output("display_data", data=types)
    return render(V4.new_code_cell("x", outputs=[output], execution_count=1))


@pytest.mark.parametrize(
    "dirty",
    [
        "<script src='https://x.org/a.js'></script>",
        "<img src='https://x.org/a.png' alt='seen'>",
        "<img srcset='//x.org/a.png 2x' src='data:image/png;base64,AA=='>",
        "<iframe src='https://x.org'></iframe>",
        "<link rel=stylesheet href='https://x.org/a.css'>",
        "<a href='javascript:alert(1)'>x</a>",
        "<a href=' java\tscript:alert(1)'>x</a>",
        "<a href='https://x.org'>x</a>",
        "<p onclick='alert(1)'>x</p>",
        "<svg xmlns='http://www.w3.org/2000/svg'><image href='https://x.org/a.png'/></svg>",
        "<form action='https://x.org'><input formaction='//x.org'></form>",
        "<video poster='https://x.org/a.png' src='https://x.org/a.mp4'></video>",
        "<p style='background:url(https://x.org/a.png)'>x</p>",
        "<style>@import 'https://x.org/a.css'; p{background:url(\"//x.org/a.png\")}</style>",
        "<object data='https://x.org'></object>",
        "<meta http-equiv=refresh content='0;url=https://x.org'>",
        "<base href='https://x.org'>",
    ],
)
def test_nothing_in_an_output_reaches_outside_or_runs(dirty):
    for clean in (page.safe(f"<b>kept</b>{dirty}"), page.markdown(f"kept\n\n{dirty}\n")):
        assert "kept" in clean
        for trace in ("x.org/a", 'src="https', 'href="https', 'href="//', "javascript", "onclick", "script:"):
            assert trace not in clean, clean


@pytest.mark.parametrize("dirty", WAYS_OUT)
def test_no_other_way_leads_out_either(dirty):
    for clean in (page.safe(f"<b>kept</b>{dirty}"), page.markdown(f"kept\n\n{dirty}\n")):
        assert "kept" in clean
        live = re.sub(r"&lt;.*?&gt;|\[picture: [^]]*\]", "", clean)  # what is shown as text
        assert not re.search(r"x\.org|script:|alert\(|data:text|<!|<\?|\\|<meta|other\.svg|action=", live)


def test_what_stands_inside_the_page_stays():
    kept = '<a href="#there">a</a><a href="rows.jsonl">b</a><img src="data:image/gif;base64,AA=="/>'
    assert page.safe(kept) == kept
    drawn = '<svg><style>.a{fill:url("#g")}</style><rect class="a" fill="url(#g)" style="x:1"></rect></svg>'
    assert page.safe(drawn) == drawn


def test_a_link_to_elsewhere_becomes_its_text():
    assert (
        page.safe("<a href='https://x.org/p'>the paper</a>")
        == '<span title="https://x.org/p">the paper</span>'
    )


def test_formulas_stay_readable_latex():
    html = page.markdown(r"Half is $\frac{1}{2} < 1$ and $$\sum_i x_i$$")
    assert r'<code class="math">\frac{1}{2} &lt; 1</code>' in html
    assert r'<code class="math block">\sum_i x_i</code>' in html


def test_a_widget_is_shown_by_its_html_or_its_text():
    view = {"application_vnd.jupyter.widget-view+json": {"model_id": "1"}}
    assert "<b>static</b>" in shown(**view, text_html="<b>static</b>", text_plain="W()")
    assert "W(value=3)" in shown(**view, text_plain="W(value=3)")
    assert "A control to use in JupyterLab" in shown(**view)


def test_the_richest_output_that_can_be_shown_is_shown():
    png = base64.b64encode(b"no picture").decode()
    assert "<table" in shown(text_html="<table><tr><td>1</td></tr></table>", text_plain="table")
    assert "data:image/svg+xml;base64," in shown(
        **{"image_svg+xml": "<svg onload='alert(1)'/>", "text_plain": "s"}
    )
    assert f"data:image/jpeg;base64,{png}" in shown(image_jpeg=png, text_plain="picture")
    assert "<strong>bold</strong>" in shown(text_markdown="**bold**", text_plain="bold")
    assert ">plain &lt;" in shown(text_plain="plain <")


def test_every_table_scrolls_in_its_own_box():
    html = page.safe("<table><tr><td><table></table></td></tr></table>")
    assert html.count('class="ck-scroll"') == 1 and html.startswith("<div")


def test_long_output_is_cut_in_the_middle_and_says_so():
    text = "\n".join(f"line {i}" for i in range(20_000))
    html = render(V4.new_code_cell("x", outputs=[V4.new_output("stream", text=text)], execution_count=1))
    assert "line 0\n" in html and "line 19999" in html and "19,800 lines left out" in html
    assert len(html) < 60_000


def test_a_progress_bar_leaves_its_last_state():
    bar = V4.new_output("stream", text="10%\r50%\r100%\n")
    html = render(V4.new_code_cell("x", outputs=[bar], execution_count=1))
    assert '<pre class="printed">100%</pre>' in html


def test_headings_make_the_contents_and_names_are_unique():
    cells = [V4.new_markdown_cell(text) for text in ("# Title\n\nintro", "## Same", "## Same", "### Below")]
    html = render(*cells)
    assert "<title>Title</title>" in html and html.count("<h1>") == 1
    for anchor in ("same", "same-2", "below"):
        assert html.count(f'id="{anchor}"') == html.count(f'href="#{anchor}"') == 1


def chart(background: str) -> bytes:
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (40, 30), background)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((2, 2, 12, 12), fill="#0072B2")
    draw.rectangle((20, 2, 30, 12), fill="#1c2024")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def test_a_chart_gets_a_dark_twin_with_clear_ground_light_ink_and_its_own_colours():
    from PIL import Image

    twin = Image.open(io.BytesIO(page.dark_twin(chart("white")))).convert("RGBA")
    assert twin.getpixel((38, 28))[3] == 0
    red, green, blue, alpha = twin.getpixel((25, 7))
    assert min(red, green, blue) > 200 and alpha > 200
    assert twin.getpixel((7, 7)) == pytest.approx((0, 114, 178, 255), abs=6)


def test_a_photo_or_a_heat_map_gets_no_twin():
    assert page.dark_twin(chart("#446688")) is None
