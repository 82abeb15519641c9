"""Cards show what a row holds; a model's words stay words."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser

import pytest
from synthetic_rows import candidate, make_rows, row

from cotkit import analysis
from cotkit.records import Judgement


class Page(HTMLParser):
    """Tags and text of a page; complains about tags that do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.words, self._open = [], "", []
        self.feed(text)
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words += data if "style" not in self._open else ""


HOSTILE = "</pre></section><script>alert(1)</script> <img src=x onerror=alert(2)> $5 & \ud800"


def test_words_of_models_and_problems_are_escaped_everywhere():
    judged = Judgement(scores={HOSTILE: 0.5}, reasons={HOSTILE: HOSTILE}, judge=HOSTILE)
    hostile = candidate(
        True, answer=HOSTILE, trace=HOSTILE, reasoning=HOSTILE, feedback=HOSTILE, leaks=[HOSTILE],
        reason=HOSTILE, call={"model": HOSTILE, "endpoint": HOSTILE},
    )  # fmt: skip
    hostile.judgement = judged
    failed = candidate(False, answer=None)
    failed.judgement = Judgement(scores=None, error=HOSTILE)
    problem = row(
        0, [hostile, failed], id=HOSTILE, problem=HOSTILE, reference=HOSTILE, type=HOSTILE, detail=HOSTILE,
        drop_reason=HOSTILE,
    )  # fmt: skip
    lost = row(1, [], errors=[{"stage": HOSTILE, "kind": HOSTILE, "message": HOSTILE}])
    page = Page(analysis.trace_cards([problem, lost]))
    assert {tag for tag, _ in page.tags} <= {
        *(
            "style",
            "div",
            "section",
            "b",
            "span",
            "ol",
            "li",
            "table",
            "tr",
            "td",
            "i",
            "details",
            "summary",
            "p",
        ),
    }
    assert page.words.count("<script>alert(1)</script>") >= 15
    analysis.trace_cards([problem]).encode("utf-8")  # no lone surrogate is left


def test_a_card_shows_the_decision_and_what_led_to_it():
    draft = candidate(False, answer="41", scores={"form": 0.25}, feedback="check the second step")
    later = candidate(True, iteration=1, stage="refine", parent=0, accepted=True, scores={"form": 0.75})
    words = Page(analysis.trace_cards([row(0, [draft, later], problem="How many?")])).words
    for said in ("p0", "How many?", "kept after 1 refinement", "42", "✓ right (number)", "0.75",
                 "draft 1: ✗ wrong, answer 41, mean score 0.25", "check the second step"):  # fmt: skip
        assert said in words, said


def test_every_candidate_but_the_final_one_is_folded_away():
    rows = make_rows(20, rationalization=True)
    for r in rows:
        page = Page(analysis.trace_cards([r]))
        folded = [tag for tag, _ in page.tags if tag == "details"]
        assert len(folded) == max(len(r.candidates) - 1, 0)


def test_three_verdicts_look_different():
    cards = [Page(analysis.trace_cards([row(0, [candidate(v)])])).words for v in (True, False, None)]
    assert ["✓ right" in cards[0], "✗ wrong" in cards[1], "? undecided" in cards[2]] == [True] * 3


@pytest.mark.parametrize(
    "trace, steps",
    [
        ("first\n\nsecond\n\nthird", 3),
        ("first\nsecond", 2),
        ("only one", 0),
        ("```python\nx = 1\n\nprint(x)\n```\n\nso 1", 0),  # code keeps its lines
    ],
)
def test_a_trace_is_shown_in_steps(trace, steps):
    page = Page(analysis.trace_cards([row(0, [candidate(trace=trace)])]))
    assert sum(tag == "li" for tag, _ in page.tags) == steps


def test_a_very_long_trace_is_cut_in_the_open():
    card = analysis.trace_cards([row(0, [candidate(trace="x" * 50_000)])])
    assert len(card) < 20_000 and "44,000 more characters" in card


def test_a_problem_without_a_trace_shows_what_the_endpoint_said():
    errors = [{"stage": "draft", "kind": "timeout", "message": "no answer within 120 s"}]
    words = Page(analysis.trace_cards([row(0, [], errors=errors)])).words
    assert "draft: timeout: no answer within 120 s" in words


def test_cards_bring_one_style_sheet_and_no_fixed_page_colours():
    cards = analysis.trace_cards(make_rows(3))
    assert cards.count("<style>") == 1
    assert cards._repr_html_() == str(cards) and len(repr(cards)) < 60
    style = cards.split("</style>")[0]
    assert (
        "background:#" not in style
        and "white" not in style.replace("white-space", "")
        and ";color:#" not in style
    )


def test_no_rows_give_a_note():
    assert "No problem to show" in analysis.trace_cards([])


def test_importing_the_room_loads_neither_pandas_nor_matplotlib():
    code = (
        "import sys, cotkit.analysis; heavy = {'pandas', 'matplotlib', 'numpy'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_every_public_name_exists():
    assert all(getattr(analysis, name) is not None for name in analysis.__all__)
    with pytest.raises(AttributeError, match="no attribute 'funel'"):
        _ = analysis.funel
