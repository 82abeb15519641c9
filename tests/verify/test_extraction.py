"""Finding the answer: each marker, what makes a marker void, references, and texts that try to break it."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from cotkit.verify import extract, extract_answer, reference_answer

BOX = [
    (r"\boxed{7}", "7"),
    (r"\boxed {7}", "7"),
    (r"\fbox{7}", "7"),
    (r"\boxed 7", "7"),
    (r"\boxed 7.", "7"),
    (r"\boxed\frac12", r"\frac12"),
    (r"\boxed\frac{1}{2}", r"\frac{1}{2}"),
    (r"So it is \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
    (r"\boxed{\sqrt{\frac{a}{b}}}", r"\sqrt{\frac{a}{b}}"),
    (r"\\boxed{\\dfrac{9}{7}}", r"\\dfrac{9}{7}"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"\boxed{test content}", "test content"),
    (r"\boxed{\text{(B)}}", r"\text{(B)}"),
    (r"First \boxed{3}, corrected: \boxed{7}", "7"),
    (r"an open brace { before \boxed{7}", "7"),
    (r"\boxed{3 is lost, \boxed{7}", "7"),
    (r"\boxed{x=\boxed{7}}", "7"),
    (r"\boxed{1} and \boxed{2}", "1, 2"),
    (r"$\boxed{1}$ or $\boxed{2}$", "1, 2"),
    (r"\boxed{1}, \boxed{2}, and \boxed{3}", "1, 2, 3"),
    (r"\boxed{1} \text{ and } \boxed{2}", "1, 2"),
    (r"\boxed{7} and \boxed{7}", "7"),
    ("\\boxed{1}\n\n\\boxed{2}", "2"),
    (r"\boxed{\text{The answer is }7}", "7"),
    (r"\boxed{\text{The answer is 7}}", "7"),
    (r"\boxed{The final answer is: 7}", "7"),
    (r"\boxed{7}. The answer is 8", "7"),
    (r"\boxed{7}. Or is it \text{8}?", "7"),
    ("```latex\n\\boxed{5}\n```", "5"),
]
NO_ANSWER = [
    ("", "empty"),
    (" \n\t", "empty"),
    (None, "empty"),
    (r"\boxed{}", "empty_box"),
    (r"\boxed{ }", "empty_box"),
    (r"\boxed{\text{}}", "empty_box"),
    (r"The answer is not \boxed{5}.", "none"),
    ("Suppose the answer is 5. Then 5 = 6, a contradiction.", "none"),
    ("The answer is (A)? No, it is (B).", "none"),
    (r"\boxed{?}", "empty_box"),
    (r"\boxed{\ldots}", "empty_box"),
    (r"\boxed{7", "unclosed_box"),
    (r"first \boxed{3}, then \boxed{7", "unclosed_box"),
    (r"<think>\boxed{5}", "thinking_not_finished"),
    ("<think>a</think>b<think>c", "thinking_not_finished"),
    (r"<think>\boxed{5}</think>", "none"),
    ("<think>maybe \\boxed{5}</think>\nI could not decide.", "none"),
    ('```python\nprint("\\boxed{5}")\n```\nno idea', "none"),
    ("```\n\\boxed{5}\n```", "none"),
    ("```python\n\\boxed{5}", "none"),
    ("~~~\nThe answer is 5\n~~~", "none"),
    ("<answer>7", "unclosed_answer_tag"),
    ("<answer> </answer>", "empty_answer_tag"),
    ("<answer>3</answer> no, <answer>7", "unclosed_answer_tag"),
    ("The answer is not 7", "none"),
    ("7 is not the answer: 8", "none"),
    ("This isn't the answer: 8", "none"),
    ("The answer is wrong", "none"),
    ("Answer the question.", "none"),
    ("The answer is 5? No, 6.", "none"),
    ("She has 72 apples left.", "none"),
    ("So 3 + 4 = 7, and that makes 8.", "none"),
    ("Hello", "none"),
    ("A: 5\nB: 6", "none"),
    ("#### Step 1: add 5", "none"),
]
PHRASES = [
    ("A naive answer is 40. But the correct answer is found to be 42.", "42"),
    ("Tom got a wrong answer: 40. The answer is computed as 42.", "42"),
    ("If we guess, the answer is 7. The correct answer is given by 42.", "42"),
    ("The answer is 3. Therefore the final answer is expressed as 7/2.", "7/2"),
    ("The answer is 18. The answer is rounded to 2 decimal places.", "18"),
    ("The answer is 7.", "7"),
    ("The final answer is $7$. I hope it is correct.", "7"),
    ("the answer is: **73**", "73"),
    ("✅ Final Answer: **73**", "73"),
    ("**Final Answer:** 73", "73"),
    ("**Answer**: 73 apples", "73 apples"),
    ("**Answer:** (B) 12", "B"),
    ("Answer: B) 12", "B"),
    ("Answer: A, C", "A, C"),
    ("ANSWER: 5", "5"),
    ("Answer = 5", "5"),
    ("The correct option is (B).", "B"),
    ("I think A is wrong, so the answer is B because of C.", "B"),
    ("the answer is 7, not 8", "7"),
    ("7 is not the answer; the answer is 8.", "8"),
    ("The answer is 5. Wait, the answer is 6.", "6"),
    ("The answer is 6. Could the answer be 7? Is the answer: 7?", "6"),
    ("The answer is 3.5 (since x>0).", "3.5"),
    ("The answer is x = 5 or x = -5.", "x = 5 or x = -5"),
    ("Answer: x = 12 cm", "x = 12 cm"),
    ("Answer: yes, since it holds", "yes"),
    ("The answer is approximately 3.14", "3.14"),
    (r"The answer is therefore \(7\).", "7"),
    (r"The answer is \[ \frac{1}{2} \]", r"\frac{1}{2}"),
    ("So the answer should be 5", "5"),
    ("The answer is $18 per day.", "$18 per day"),
    ("The answers are 3 and 4.", "3 and 4"),
    ("The result is 12", "12"),
    ("The answer is Jan. 5, 2024.", "Jan. 5, 2024"),
    ("The answer is Dec. It was cold.", "Dec"),
    ("The answer is Mr. Smith. He said so.", "Mr. Smith"),
    ("The answer is France vs. Spain.", "France vs. Spain"),
    ("The answer is approx. 3.14.", "approx. 3.14"),
    ("The answer is any even number, e.g. 4.", "any even number, e.g. 4"),
    ("The answer is 0.75, i.e. 75%.", "0.75"),
    ("The answer is (1, 2), i.e. a point.", "(1, 2)"),
    ("The answer is the smallest prime (i.e. 2).", "2"),
    ("The result is 3. So the answer is 4. The result is 5.", "4"),
    ("答案是7。", "7"),
    ("答案：12", "12"),
    ("The final answer is:\n\n72", "72"),
    ("#### Final Answer\n42", "42"),
    ("### Answer\n\n$\\frac{1}{2}$", r"\frac{1}{2}"),
    ("**Final Answer**\n\n72", "72"),
    ("x</think>The answer is 7", "7"),
    ("#### Step 1: add\n5+3=8\n#### Step 2: done\nThe answer is 8.", "8"),
    ("The answer is 18. Let me verify: 9*2 = 18. The answer is correct.", "18"),
    ("The answer is no. Let me check. The answer is correct.", "no"),
    ("The answer is 18. This answer is consistent with the problem.", "18"),
    ("The answer is 18. The answer is reasonable.", "18"),
    ("Answer: 18\n\nThe answer is in dollars.", "18"),
    ("The answer is 5.\n\nNote: the answer is rounded to the nearest integer.", "5"),
    ("The answer is 5.\n\n(The answer is an integer.)", "5"),
    ("The answer is 5. The answer is positive since x>0.", "5"),
    ("The answer is 5, and this answer is final.", "5"),
    ("Answer: 5\n\nLet me know if this answer is helpful!", "5"),
    ("Answer: 5\nExplanation: The correct answer is obtained by adding 2 and 3.", "5"),
    ("The answer is B.\n\nA: the answer is too small. C: the answer is too big.", "B"),
    ("The result is 18. The answer is correct.", "18"),
    ("The answer is correct.", "correct"),
    ("Final answer: correct", "correct"),
    ("The student's answer is 12. We get 12. The answer is correct.", "correct"),
    ("The answer is negative at first. So the answer is positive.", "positive"),
    ("The answer is 5. Wait, no: the answer is Paris", "Paris"),
    ("Final Answer:\n- 5", "5"),
    ("Final Answer:\n\n> 5", "5"),
    ("### Final Answer\n- **42**", "42"),
    ("Answer:\n1. 5", "5"),
    ("Answer:\n-5", "-5"),
    ("Answer: -5", "-5"),
    ("The answer is 5 ft. 3 in.", "5 ft. 3 in"),
    ("The answer is 3 hrs. 20 min.", "3 hrs. 20 min"),
    ("The answer is St. Louis.", "St. Louis"),
    ("The answer is vitamin C. It is right.", "vitamin C"),
    ("The answer is J. It is right.", "J"),
    ("The answer is 5! = 120.", "5! = 120"),
    ("My final answer is 7!", "7"),
    ("因此故选B", "B"),
    ("The answer is (A) or (B).", "(A) or (B)"),
    ("The answer is (A) or B.", "(A) or B"),
    ("The answer is A) or B).", "A) or B)"),
    ("The correct option is (A) and (B).", "(A) and (B)"),
    ("The answer is (A), no, (B).", "(A), no, (B)"),
    ("The answer is A. Or B.", "A. Or B"),
    ("The answer is 5; or 6.", "5; or 6"),
    ("The answer is 5. Or 6.", "5. Or 6"),
    ("The answer is 0.5. Or equivalently, 1/2.", "0.5"),
    ("The answer is (D) both (A) and (B).", "D"),
    ("The answer is B) red, not A) blue.", "B"),
    ("The answer is (B), because (A) is too small.", "B"),
    ("The answer is B. And A is wrong since it is odd.", "B"),
    ("The answer is 6. Suppose the answer is 5. Then 5 = 6.", "6"),
    ("I suppose the answer is 5.", "5"),
    ("The answer is not \\boxed{5}. The answer is 6.", "6"),
]
OTHERS = [
    ("<answer>7</answer>", "7", "answer_tag"),
    ("<ANSWER>\n 7 \n</ANSWER>", "7", "answer_tag"),
    (r"<think>x</think><answer>\boxed{7}</answer>", "7", "answer_tag"),
    ("<answer> The answer is 7 </answer>", "7", "answer_tag"),
    ("<answer>3</answer> hmm <answer>7</answer>", "7", "answer_tag"),
    ('<answer type="number">7</answer>', "7", "answer_tag"),
    ("<final_answer>7</final_answer>", "7", "answer_tag"),
    ("<|channel|>analysis<|message|>Is it 3?<|end|><|channel|>final<|message|>7", "7", "bare"),
    ("She makes 9*2=18.\n#### 18", "18", "hashes"),
    ("#### 1,234\n", "1,234", "hashes"),
    ("#### -5", "-5", "hashes"),
    ("#### 5\n#### 6", "6", "hashes"),
    ("Janet sells 9.\nA: 18", "18", "answer_line"),
    ("72", "72", "bare"),
    ("$72", "$72", "bare"),
    ("72 apples", "72 apples", "bare"),
    (r"\frac{1}{2}", r"\frac{1}{2}", "bare"),
    ("(B)", "(B)", "bare"),
    ("yes", "yes", "bare"),
    ("use `<think>` tags. \\boxed{3}", "3", "box"),
    ("```html\n<think>\n```\n\\boxed{3}", "3", "box"),
    ("<think>```py\nopen</think> \\boxed{4}", "4", "box"),
    ("<thinking>5</thinking> \\boxed{4}", "4", "box"),
]


@pytest.mark.parametrize(
    ("text", "answer", "how"),
    [(text, answer, "box") for text, answer in BOX]
    + [(text, None, how) for text, how in NO_ANSWER]
    + [(text, answer, "phrase") for text, answer in PHRASES]
    + OTHERS,
)
def test_the_answer_and_where_it_stood(text, answer, how):
    found = extract(text)
    assert (found.answer, found.how) == (answer, how)
    assert extract_answer(text) == answer


def test_the_last_number_counts_only_on_request():
    for text, answer in [
        ("She has 18 eggs.", "18"),
        ("So 3+4 = 7 and 8 more", "7"),
        ("It costs $1,250.50, she says.", "$1,250.50"),
    ]:
        assert extract(text).answer is None
        found = extract(text, last_number=True)
        assert (found.answer, found.how) == (answer, "last_number")
    assert extract("no number", last_number=True).how == "none"
    assert extract(r"12 \boxed{7} 13", last_number=True).answer == "7"


def test_a_pattern_replaces_the_markers_and_its_last_match_counts():
    text = "ANS[3] then ANS[7] \\boxed{9}"
    found = extract(text, pattern=r"ANS\[(.*?)\]")
    assert (found.answer, found.how) == ("7", "pattern")
    assert extract("\\boxed{9}", pattern=r"ANS\[(.*?)\]").how == "none"
    assert extract("<think>ANS[3]</think>", pattern=r"ANS\[(.*?)\]").answer is None


@pytest.mark.parametrize("pattern", [r"\\boxed{(.*?)}", r"\\boxed\{(.*?)\}"])
def test_camels_default_pattern_means_the_balanced_box_and_nothing_else(pattern):
    assert extract(r"\boxed{1} \boxed{\frac{1}{2}}", pattern=pattern).answer == r"\frac{1}{2}"
    assert extract("#### 72", pattern=pattern).how == "none"
    assert extract(r"<think>\boxed{1}", pattern=pattern).how == "thinking_not_finished"


@pytest.mark.parametrize(
    ("pattern", "says"), [("(", "no regular expression"), ("a", "0 groups"), ("(a)(b)", "2 groups")]
)
def test_a_pattern_that_cannot_work_is_refused(pattern, says):
    with pytest.raises(ValueError, match=says):
        extract("text", pattern=pattern)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("72", "72"),
        (" 72 ", "72"),
        ("x = 5", "x = 5"),
        ("True", "True"),
        ("5 cm", "5 cm"),
        ("(-4, 27);(2, 15)", "(-4, 27);(2, 15)"),
        ("{'answer': 5, 'result': 6}", "{'answer': 5, 'result': 6}"),
        ("[[1,\n 2]]", "[[1,\n 2]]"),
        ("\\begin{pmatrix}1\\\\\n2\\end{pmatrix}", "\\begin{pmatrix}1\\\\\n2\\end{pmatrix}"),
        ("Paris", "Paris"),
        ("\\boxed{7}", "7"),
        ("So 3+4=7.\n#### 7", "7"),
        ("#### 72", "72"),
        ("He eats 2.\nA: 72", "72"),
        ("The answer is 5", "5"),
        ("<think>x</think>\n<answer>5</answer>", "5"),
        ("The total is 5.\nSo she has 72.", None),
        ("\\boxed{3", None),
        ("", None),
        (None, None),
    ],
)
def test_the_gold_answer_inside_a_reference(reference, answer):
    assert reference_answer(reference) == answer


def test_a_pattern_on_a_reference_falls_back_on_the_plain_answer():
    assert reference_answer(r"so \boxed{72}", pattern=r"\\boxed{(.*?)}") == "72"
    assert reference_answer("72", pattern=r"\\boxed{(.*?)}") == "72"
    assert reference_answer("work\n#### 72", pattern=r"\\boxed{(.*?)}") == "72"


HOSTILE = {
    "spaces": " " * 1_000_000,
    "newlines": "\n" * 1_000_000,
    "open braces": "{" * 1_000_000,
    "open boxes": "\\boxed{" * 140_000,
    "nested boxes": "\\boxed{" * 10_000 + "7" + "}" * 10_000,
    "boxes in a row": "\\boxed{7} and " * 35_000,
    "open tags": "<answer>" * 120_000,
    "thinking": "<think>" * 140_000,
    "closed thinking": "</think>" * 120_000,
    "fences": "```\n" * 250_000,
    "hashes": "#" * 1_000_000,
    "hash lines": "#### step a b c\n" * 60_000,
    "the answer": "the answer is not " * 55_000,
    "answer and spaces": "answer" + " " * 1_000_000,
    "answers": "answer " * 140_000,
    "bold": "*" * 1_000_000,
    "bold answers": "**answer**" * 100_000,
    "dollars": "The answer is " + "$" * 1_000_000,
    "backslashes": "\\" * 1_000_000,
    "digits": "1" * 1_000_000,
    "commas": "1," * 500_000,
    "A lines": "A: \n" * 250_000,
    "NUL": "\x00" * 1_000_000,
    "surrogates": "\ud800" * 1_000_000,
    "combining": "a" + "\u0301" * 1_000_000,
    "sentence": "it is so that " * 70_000,
    "remarks": "the answer is positive " * 45_000,
    "list marks": "Answer:\n- " * 100_000,
    "tags with attributes": "<answer " * 120_000,
    "channels": "<|channel|>final<|message|>" * 40_000,
}


def test_no_text_of_a_megabyte_hangs_the_extraction_or_the_check():
    """In a process that is killed after a minute: an unbounded rule would need hours on these texts."""
    script = (
        f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
        "from test_extraction import HOSTILE\n"
        "from cotkit.verify import check_answer, extract\n"
        "for name, text in HOSTILE.items():\n"
        "    extract(text, last_number=True)\n"
        "    assert check_answer(text, '8').correct is not True, name\n"
        "print('done', len(HOSTILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == f"done {len(HOSTILE)}", done.stderr[-2000:]
