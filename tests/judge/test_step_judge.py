"""The process judge that needs no model: three scores, and feedback that names what is wrong."""

from __future__ import annotations

import json

import pytest

from cotkit.judge import StepJudge
from cotkit.judge.steps import Stated, repetition, shown
from cotkit.problems import Problem

PROBLEM = Problem(
    id="1", problem="Mia has 3 boxes of 6 pens and gives away 4. How many are left?", reference="14"
)
GOOD = "She has 3 * 6 = 18 pens.\nShe keeps 18 - 4 = 14 pens.\nThe answer is \\boxed{14}."


def judged(trace):
    return StepJudge().judge(PROBLEM, trace)


def scores(trace):
    return tuple(round(score, 2) for score in judged(trace).scores.values())


TRACES = {
    "all right": (GOOD, (1, 1, 1)),
    "one step of two wrong": (GOOD.replace("= 18", "= 19"), (0.5, 1, 1)),
    "two of three": ("3 * 6 = 18\n18 - 4 = 15\n15 + 0 = 15\n\\boxed{15}", (0.67, 1, 1)),
    "right steps, another answer": (GOOD.replace("{14}", "{15}"), (1, 0, 1)),
    "the answer of an earlier step": (GOOD.replace("{14}", "{18}"), (1, 0.75, 1)),
    "a wrong last step that the answer follows": ("3 * 6 = 17. \\boxed{17}", (0, 1, 1)),
    "no box": (GOOD.replace("\\boxed{14}", "14"), (1, 1, 0.83)),
    "GSM8K's mark": ("She has 3 * 6 = 18\n#### 18", (1, 1, 1)),
    "two different boxes": (GOOD.replace("3 * 6 = 18", "3 * 6 = \\boxed{18}"), (1, 1, 0.83)),
    "the same box twice": (GOOD + " So \\boxed{14}.", (1, 1, 1)),
    "no answer": ("She has 3 * 6 = 18 pens.", (1, 0, 0.67)),
    "no step": ("I think it is \\boxed{14}.", (0, 0, 1)),
    "a comparison": ("84 is greater than 48. Therefore the answer is \\boxed{84}.", (0, 1, 1)),
    "a text answer": ("Ben has 3 + 4 = 7, Ann 2 + 2 = 4. Ben has more. \\boxed{\\text{Ben}}", (1, 1, 1)),
    "a text answer from nowhere": ("3 + 4 = 7. \\boxed{\\text{Ben}}", (1, 0.5, 1)),
    "cut in a step": ("She has 3 * 6 = 18 pens. Then 18 -", (1, 0, 0.33)),
    "cut in a word": ("She has 3 * 6 = 18 pens … 18 \\text", (1, 0, 0.33)),
    "cut in a box": ("3 * 6 = 18 \\boxed{1", (1, 0, 0.33)),
    "cut in a thought": ("<think>\n3 * 6 = 18. Hmm, let me see.", (1, 0, 0.33)),
    "a thought with its own box": (
        "<think>\n3 * 6 = 18 \\boxed{18}\n18 - 4 = 14\n</think>\n\n\\boxed{14}",
        (1, 1, 1),
    ),
    "a loop": ("3 * 6 = 18. \\boxed{18}" + " The answer is 18." * 5, (1, 1, 0.67)),
    "a loop of words": ("3 * 6 = 18 " + "and then she gives " * 12 + "\\boxed{18}", (1, 1, 1)),
    "a loop at the end": ("3 * 6 = 18 \\boxed{18} " + "and then she gives " * 12, (1, 1, 0.67)),
    "empty": ("", (0, 0, 0.33)),
    "rounded up": ("100 / 8 = 12.5, so 13 boxes. \\boxed{13}", (1, 1, 1)),
    "rounded to cents": ("10 / 3 = 3.3333. \\boxed{3.33}", (1, 1, 1)),
    "an answer in percent": ("15 / 60 = 0.25, which is 25%. \\boxed{25\\%}", (1, 1, 1)),
    "an answer in cents": ("$2.00 / 8 = $0.25 each. \\boxed{25}", (1, 1, 1)),
    "a fraction": ("1/4 + 1/4 = 1/2. \\boxed{\\frac{1}{2}}", (1, 1, 1)),
    "money": ("$1,150 + $50 = $1,200. \\boxed{\\$1{,}200}", (1, 1, 1)),
    "with a unit": ("3 * 6 = 18. \\boxed{18 \\text{ pens}}", (1, 1, 1)),
    "an equation": ("3 * 6 = 18. \\boxed{x = 18}", (1, 1, 1)),
    "an operand of the last step": (GOOD.replace("{14}", "{4}"), (1, 0.5, 1)),
    "the answer of the step before the last": ("4 * 7 = 28 and 4 * 9 = 36. \\boxed{28}", (1, 0.75, 1)),
    "an unread last step": ("6 + 2 = 8. The cube root of that is 2. \\boxed{2}", (1, 1, 1)),
    "an answer only announced": ("6 + 2 = 8. The answer is 9. \\boxed{9}", (1, 0.5, 1)),
    "a debt": ("4 + 5 = 9, 9 - 16 = -7, so he owes $7. \\boxed{7}", (1, 1, 1)),
    "a root": ("3^2 + 4^2 = 9 + 16 = 25, and sqrt(25) = 5. \\boxed{5}", (1, 1, 1)),
    "a unit change": ("She pays 2 x 6 = 12 dollars = 1200 cents. \\boxed{1200}", (1, 1, 1)),
    "cents to dollars": ("2 dimes is 2*10 = 20 cents = $0.20. \\boxed{0.20}", (1, 1, 1)),
    "a remainder": ("23 divided by 4 is 5 remainder 3. \\boxed{3}", (1, 1, 1)),
    "a clock": ("4:15 + 50 minutes = 5:05. \\boxed{5:05}", (0.75, 1, 1)),
    "an irrational root": ("sqrt(2) = 1.41. \\boxed{1.41}", (0.75, 1, 1)),
    "unread beside a wrong step": ("4:15 + 50 minutes = 5:05. 3 + 4 = 8. \\boxed{8}", (0, 1, 1)),
    "a wrong share in prose": ("20% of 60 is 13, 60 + 13 = 73. \\boxed{73}", (0.5, 1, 1)),
    "words for numbers": ("six plus two equals nine. \\boxed{9}", (0, 0, 1)),
    "a wrong solution": ("y + 4 = 10, y = 5. \\boxed{5}", (0, 1, 1)),
    "algebra": ("8 + 4x = 40, 4x = 40 - 8 = 32, x = 8. \\boxed{8}", (1, 1, 1)),
}


@pytest.mark.parametrize(("trace", "expected"), TRACES.values(), ids=TRACES)
def test_a_trace_gets_its_three_scores(trace, expected):
    assert scores(trace) == expected


def test_feedback_names_the_wrong_step_and_what_it_is_worth():
    judgement = judged("She has 3 * 6 = 18 pens.\n12 * 4 = 46 in all.\n\\boxed{46}")
    assert judgement.feedback == "Step 2 (line 2): '12 * 4 = 46' is wrong: 12 * 4 = 48."
    assert judgement.reasons["form"] == "The form is clean."
    assert judgement.raw == {"steps_checked": 2, "steps_right": 1}
    assert judgement.error is None and judgement.judge == "steps" and judgement.call is None


def test_feedback_of_many_errors_stays_short():
    feedback = judged("\n".join(f"{i} + 1 = {i}" for i in range(2, 12)) + "\n\\boxed{11}").feedback
    assert feedback.count("is wrong") == 5 and "5 more steps are wrong." in feedback


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (GOOD, ""),
        ("It is \\boxed{14}.", "shows no step that can be checked"),
        (
            GOOD.replace("{14}", "{15}"),
            "The final answer 15 appears in no step; the last checked step, '18 - 4 = 14', gives 14.",
        ),
        (
            GOOD.replace("{14}", "{18}"),
            "The final answer 18 follows from '3 * 6 = 18'; the last checked step, '18 - 4 = 14', gives 14.",
        ),
        (
            GOOD.replace("{14}", "{4}"),
            "The final answer 4 is stated, but no checked step gives it; the last checked step",
        ),
        (
            "4:15 + 50 minutes = 5:05. \\boxed{5:05}",
            "1 calculation, of a kind this judge cannot read: not checked",
        ),
        (GOOD.replace("\\boxed{14}", "14"), "is not in a box"),
        (GOOD.replace("3 * 6 = 18", "3 * 6 = \\boxed{18}"), "it boxes 2 different answers"),
        ("3 * 6 = 18. \\boxed{18}" + " The answer is 18." * 5, "it repeats itself: 'the answer is 18'"),
        ("She has 3 * 6 = 18 pens. Then 18 -", "it breaks off before its end"),
    ],
)
def test_feedback_says_what_to_change(trace, says):
    feedback = judged(trace).feedback
    assert says in feedback and (says or feedback == "")


def test_the_reference_is_never_read():
    class Blind:
        problem = "p"

        @property
        def reference(self):
            raise AssertionError("the reference was read")

    assert StepJudge().judge(Blind(), GOOD).scores == {"steps": 1.0, "consistency": 1.0, "form": 1.0}
    wrong = GOOD.replace("= 14 pens", "= 13 pens").replace("{14}", "{13}")
    with_other_reference = PROBLEM.model_copy(update={"reference": "99"})
    assert StepJudge().judge(with_other_reference, wrong) == StepJudge().judge(PROBLEM, wrong)


def test_every_text_gets_a_judgement():
    for trace in (
        "\ud800 3 + 4 = 7",
        "\x00=\x00",
        "=" * 5000,
        "٣ + ٤ = ٧",
        "½½½ = ½",
        "\\",
        "\\frac",
        "{{ 1 = 1 }}",
        "²=²",
        "<<>>",
    ):
        assert set(judged(trace).scores) == {"steps", "consistency", "form"}


def test_a_very_long_trace_is_read_outside_the_loop():
    assert judged("Nothing to see here.\n" * 3000 + GOOD).scores["steps"] == 1.0


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("5 + 5 = 10. " * 3, None),
        ("The total is 10.\n" * 4, "the total is 10"),
        ("a b c " * 3, None),
        ("one two three " * 6, "one two three"),
        ("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", None),
        ("ha " * 12, None),
        ("ha " * 13, "ha"),
    ],
)
def test_repetition_is_a_sentence_or_a_loop_said_four_times(text, repeats):
    assert repetition(text) == repeats


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        ("18", {18}),
        (r"\frac{1}{2}", {0.5}),
        ("20%", {0.2, 20}),
        ("about 5 apples", {5}),
        ("3 and 5", None),
        ("x + 1", None),
        (r"\sqrt{2}", None),
        ("5x", None),
        ("Ben", None),
    ],
)
def test_an_answer_is_one_number_or_none(answer, values):
    stated = Stated.read(answer)
    assert (None if stated is None else {float(value) for value in stated.values}) == values


def test_values_are_shown_short():
    from fractions import Fraction

    assert [shown(Fraction(v)) for v in ("48", "-3", "2.75", "25/3", "1/8")] == [
        "48",
        "-3",
        "2.75",
        "8.3333",
        "0.125",
    ]
    assert shown(-(Fraction(10) ** 400) / 3) == "about -10^399"


def test_a_step_with_a_value_beyond_floats_is_judged():
    problem = Problem(id="1", problem="q")
    judgement = StepJudge().judge(problem, "1e200 * 1e200 / 3 = 5. \\boxed{5}")
    assert judgement.scores["steps"] == 0 and "10^399" in str(judgement.reasons)


def rows_of(path, every):
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return [json.loads(line) for line in lines[::every]]


def test_worked_solutions_of_gsm8k_hold(shared_data):
    judgements = [judged(row["answer"]) for row in rows_of(shared_data / "gsm8k_test.jsonl", 4)]
    nearly_all = 0.97 * len(judgements)
    assert sum(j.scores["steps"] == 1 for j in judgements) >= nearly_all  # measured: 1304 of all 1319
    assert sum(j.scores["consistency"] == 1 for j in judgements) >= nearly_all  # 1317 of all
    assert all(j.scores["form"] == 1 for j in judgements)


def test_a_wrong_step_in_a_real_solution_mostly_means_a_wrong_answer(shared_data):
    rows = rows_of(shared_data / "gsm8k_model_solutions.jsonl", 6)
    flagged = [row["is_correct"] for row in rows if 0 < judged(row["solution"]).scores["steps"] < 1]
    assert len(flagged) >= 8
    assert sum(flagged) / len(flagged) < 0.25  # of all 2,640 rows 37 % are right


def test_a_judge_shows_itself():
    judge = StepJudge()
    assert repr(judge) == "StepJudge('steps': steps, consistency, form)"
    assert "no model" in judge._repr_markdown_() and "| form |" in judge._repr_markdown_()
    assert judge.describe() == {
        "judge": "StepJudge",
        "name": "steps",
        "dimensions": ["steps", "consistency", "form"],
    }
