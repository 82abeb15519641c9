"""The pure parts of synthesis: novelty, questions, programs, planted errors, strategies' arithmetic."""

from __future__ import annotations

import ast
import asyncio
import pathlib
import random
import time

import pytest

from cotkit.pipelines.novelty import Novelty, rouge_l, words_of
from cotkit.pipelines.operators import OPERATORS, parse_operators
from cotkit.pipelines.planted import planted_errors
from cotkit.pipelines.pool import Pool
from cotkit.pipelines.programs import read_program, single_answer, type_of
from cotkit.pipelines.questions import check_gates, fault_of, gain, read_question, situation_of
from cotkit.pipelines.running import NotStarted
from cotkit.pipelines.strategies import fitting_lag, place_in_chain
from cotkit.problems import load_problems

TEXT = "Mia has 7 boxes with 12 pens each and gives 9 pens to Tom. How many pens does Mia have now?"


@pytest.mark.parametrize(
    ("other", "how"),
    [
        (
            "mia has 7 boxes, with 12 pens each, and gives 9 pens to Tom: how many pens does Mia have now",
            "same",
        ),
        (TEXT.replace("7", "30").replace("9", "1,250.5"), "only the numbers"),
        (TEXT.replace("Tom", "Ben"), "one word"),
        (TEXT.replace("has 7", "now has 30"), "one word"),
        ("Every day " + TEXT, "triples"),
        (TEXT.replace("7", "twenty-five").replace("12", "three"), "only the numbers"),
        ("A train covers 90 km in 2 hours. What is its speed?", None),
        (TEXT.replace("Mia", "Zoe").replace("pens", "figs").replace("boxes", "bags"), None),
    ],
)
def test_likeness_is_found_in_each_of_its_forms(other, how):
    index = Novelty(near=0.7)
    index.add("a", TEXT)
    found = next(index.like(other), None)
    assert (found is None) if how is None else (found[0] == "a" and how in found[1])


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        ("What's the sum of 5 and 6?", True),
        ("What is the total of 5 and 6?", True),
        ("What is sum of the 5 and 6?", True),
        ("So what is the sum of 5 and 6?", True),
        ("What is half of the sum of 5 and 6?", False),
        ("How large is the sum of 5 and 6?", False),
    ],
)
def test_a_short_question_with_one_other_word_is_not_new(other, alike):
    index = Novelty(near=0.7)
    index.add("a", "What is the sum of 3 and 4?")
    assert bool(list(index.like(other))) == alike
    assert not list(index.like(other, relatives=["a"]))


def test_of_relatives_only_the_same_words_count():
    index = Novelty(near=0.5, rouge=0.5)
    index.add("a", TEXT)
    longer = TEXT.replace("How many", "Each pen costs 3 dollars. How many")
    assert next(index.like(longer))[0] == "a" and not list(index.like(longer, relatives=["a"]))
    assert next(index.like(TEXT.replace("7", "8"), relatives=["a"]))[1] == "only the numbers differ"


def longest_common(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        before = row[:]
        for j, y in enumerate(b):
            row[j + 1] = before[j] + 1 if x == y else max(row[j], before[j + 1])
    return row[-1]


def test_rouge_l_equals_the_textbook_algorithm():
    rng = random.Random(0)
    for _ in range(200):
        a, b = ([rng.choice("abcdefgh") for _ in range(rng.randint(1, 70))] for _ in range(2))
        assert rouge_l(a, b) == pytest.approx(2 * longest_common(a, b) / (len(a) + len(b)))
    assert rouge_l([], ["a"]) == 0 and rouge_l(list("abc"), list("abc")) == 1


@pytest.mark.parametrize("near", [0.5, 0.7, 0.9])
def test_min_hash_misses_hardly_any_pair_that_the_exact_similarity_finds(near):
    """Texts of known similarity around the threshold; the exact Jaccard similarity is the truth."""
    rng, index, words = random.Random(1), Novelty(near), [f"{c}{d}" for c in "bcdfg" for d in "aeiou"]
    texts = [[rng.choice(words) for _ in range(40)] for _ in range(60)]
    for key, text in enumerate(texts):
        index.add(key, " ".join(text))
    should = found = 0
    for key, text in enumerate(texts):
        changed = [rng.choice(words) if rng.random() < 0.04 else word for word in text]
        a, b = ({tuple(t[i : i + 3]) for i in range(38)} for t in (text, changed))
        if len(a & b) / len(a | b) >= near:
            should += 1
            found += key in {k for k, _ in index.like(" ".join(changed))}
    assert should >= 10 and found >= 0.95 * should


@pytest.mark.parametrize(
    ("reply", "question"),
    [
        ("Problem 4:\nTom has 3 hats. How many?", "Tom has 3 hats. How many?"),
        ("**Problem 4:** Tom has 3 hats. How many?", "Tom has 3 hats. How many?"),
        ("Sure! Here is a new problem:\n\nTom has 3 hats. How many?", "Tom has 3 hats. How many?"),
        ('Here\'s the rewritten problem:\n"Tom has 3 hats. How many?"', "Tom has 3 hats. How many?"),
        ("4. Tom has 3 hats. How many?\n\nSolution: he has 3.", "Tom has 3 hats. How many?"),
        ("Tom has 3 hats. How many?\nAnswer: 3", "Tom has 3 hats. How many?"),
        ("Tom has 3 hats. How many?\n\nProblem 5:\nAnn has 2.", "Tom has 3 hats. How many?"),
        ("Tom has 3 hats.\nA hat costs $2.50.\nHow much?", "Tom has 3 hats.\nA hat costs $2.50.\nHow much?"),
        ("Is $\\{x\\}$ = {{ 2 }} or \\frac{1}{2}?", "Is $\\{x\\}$ = {{ 2 }} or \\frac{1}{2}?"),
        ("3.5 km are walked. How far?", "3.5 km are walked. How far?"),
        ("  \n ", ""),
        ("Problem 4:", ""),
        ("How **many** are **7 hats**?", "How many are 7 hats?"),
        ("Problem 4: -5 + $x$ is what?", "-5 + $x$ is what?"),
        ("Find x in x + 3 = 5.\n\nAnswer: 2", "Find x in x + 3 = 5."),
        ('"Tom has 3 hats. How many?"', "Tom has 3 hats. How many?"),
        ("# Problem\nTom has 3 hats. How many?", "Tom has 3 hats. How many?"),
        ("Problem 3\nTom has 3 hats. How many?", "Tom has 3 hats. How many?"),
        ("*Problem*: Tom has 3 hats. How many?", "Tom has 3 hats. How many?"),
        ("Rewritten problem (harder): Tom has 3 hats. How many?", "Tom has 3 hats. How many?"),
        ("<question>Tom has 3 hats. How many?</question>", "Tom has 3 hats. How many?"),
        ("<think>A hat?</think>Tom has 3 hats. How many?", "Tom has 3 hats. How many?"),
        ("Tom has 3 hats. How many?\nLet's think: 3.", "Tom has 3 hats. How many?"),
        ("Tom has 3 hats. How many?\nTo solve this, we count.", "Tom has 3 hats. How many?"),
        ("Tom has 3 hats. How many?\n\n---\n\n**Solution:** 3", "Tom has 3 hats. How many?"),
        ("Tom has 3 hats. How many?\nThe answer is 3.", "Tom has 3 hats. How many?"),
    ],
)
def test_a_question_is_peeled_out_of_a_reply(reply, question):
    assert read_question(reply) == question


@pytest.mark.parametrize(
    "question",
    [
        "What is 2**3 plus 3**2?",
        "Prices are listed.\n| item | price |\n|---|---|\n| pen | 3 |\n\nHow much do 4 pens cost?",
        "A tank holds 5 l.\n\nTo find the level, a probe reports 3 cm. What is it?",
        "What does this print?\n```python\nprint(2**3)\n```",
        "12. 5 kg of salt are sold. How many are left of 20?",
        "How many boxes are there?\nNote: a box holds 6.",
        'What is the length of "abc" or "de"',
        "How many pens are in 4 boxes?\nAnswer with a whole number: no units.",
        "How far is it?\nAnswer: in metres.",
        "How far is it?\nThe answer is a whole number.",
        "Give the result.\nThe answer should be rounded to: 2 decimals. A car drives 3 km.",
        "Find x with 3.\n\nExplanation of terms: x is 4 apples.",
        "How much salt is it?\n\nThe solution: 3 g of salt in 5 l.",
        "How long is it?\nTo determine the length, take g = 9.81.",
        "What is the sum?\nLet's say a pen costs 3 dollars.",
        "What does this print?\nCode:\n```python\nprint(3)\n```",
        "What is the sum of the table?\n<table>\n3 4\n</table>\nIt is in cm.",
        "What do 3 cost?\n---\npen: 5 euros",
        "Here is a list of prices: 3 and 4. What is their sum?",
        "1. Tom has 3 hats.\n2. Ann has 4.\nHow many have they?",
    ],
)
def test_what_belongs_to_a_question_stays_as_it_is(question):
    assert read_question(question) == question


@pytest.mark.parametrize(
    "unit", ["answer: 4 is 5 words here\n", "\n", "Problem: ", "1. ", "**", "\n---", "<think>", " "]
)
def test_reading_a_question_takes_time_in_proportion_to_its_length(unit):
    """Four times the text, measured against itself on this machine: 4 if linear, 16 if quadratic."""
    gates, _ = check_gates(None, "self_instruct")

    def seconds(count):
        text, times = "x" + unit * count + "\nTom has 3 hats", []
        for _ in range(3):
            started = time.process_time()
            fault_of(read_question(text), gates, [TEXT])
            times.append(time.process_time() - started)
        return min(times)

    assert seconds(16_000) < max(10 * seconds(4_000), 0.05)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Pick the larger of 3 and 5 and double it.", None),
        ("A pump moves 4 litres a second. How many litres does it move in 9 seconds.", None),
        ("Tom has 3 hats and buys 2 more. Compute the number of hats.", None),
        ("If Tom has 3 hats and buys 2 more, find the number of hats.", None),
        ("汤姆有3顶帽子，又买了2顶。他有几顶？", None),
        ("How many hats does 3 and 2 give?\n```python\nprint(5)\n```", "unparsed"),
        ("Tom has 3 hats and buys 2 more. How many hats has he?", None),
        ("", "unparsed"),
        ("What is it? Is it that?", "unparsed"),
        ("I'm sorry, but I cannot write a new problem of this kind.", "unparsed"),
        ("The rewritten problem is that Tom has 3 hats and 2 caps.", "copied"),
        ("How many hats, 3?", "length"),
        ("Tom has 3 hats. " * 100, "length"),
        ("Look at the picture of Tom's 3 hats and 4 caps. How many?", "keyword"),
        ("The pictures of database 3 are 4 and 5, mapped. How many are they?", None),  # whole words only
        ("Tom has 3 hats and buys 2 more, so he has 5 hats.", "unparsed"),
        ("Tom has some hats and buys more. How many hats does he have?", "unanswerable"),
        ("Tom has three hats and buys more. How many hats does he have?", None),
    ],
)
def test_what_is_no_question_has_a_reason(question, reason):
    gates, _ = check_gates({"keywords": ["Picture"]}, "few_shot")
    fault = fault_of(question, gates, [TEXT])
    assert (fault[0] if fault else None) == reason


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Write a program that adds 3 and 4, then prints it.", "start"),
        ("write a Program that adds 3 and 4, then prints it.", "start"),
        ("Tom has to write a program of 30 lines in 2 days. How many a day?", None),
        ("$x$ is 3 and $y$ is 4. What is their sum?", "start"),
        ("(3 + 4) times two is which number?", "start"),
        ("Ärzte haben 3 Patienten und 4 Betten. Wie viele sind das?", "start"),
        ("Look at the map of 3 towns and 4 roads. How many are they?", "keyword"),
        ("How many are 3 and 4?", None),
    ],
)
def test_the_gates_of_the_original_self_instruct(question, reason):
    gates, notes = check_gates(None, "self_instruct", [TEXT])
    fault = fault_of(question, gates, [TEXT])
    assert (fault[0] if fault else None) == reason and not notes
    assert fault_of(question, check_gates(None, "few_shot")[0], [TEXT]) is None


def test_no_gate_refuses_what_the_seeds_do_unless_it_was_asked_for():
    short, long = "$3 + 4$: how much?", "Élan: " + "map of 3 towns, " * 60 + "how many?"
    gates, notes = check_gates(None, "self_instruct", [TEXT, short, long])
    assert [fault_of(text, gates, [TEXT]) for text in (short, long)] == [None, None] and len(notes) == 5
    assert "write a program" in gates["starts"] and "image" in gates["keywords"]
    asked = {"starts": [r"\$"], "min_words": 6}
    gates, notes = check_gates(asked, "self_instruct", [TEXT, short])
    assert gates["starts"] == [r"\$"] and fault_of(short, gates, [TEXT])[0] == "length" and not notes


@pytest.mark.parametrize(
    ("text", "rule", "reason"),
    [
        (
            "All 3 cats are black. Is it true, false, or cannot be determined that Tom is one?",
            "apology",
            "unparsed",
        ),
        ("Maximise 3x + 2y. What is the value of the dual of the given problem?", "prompt_words", "copied"),
    ],
)
def test_a_fixed_rule_that_a_seed_breaks_is_not_applied_unless_it_was_asked_for(text, rule, reason):
    gates, notes = check_gates(None, "few_shot", [TEXT, text])
    assert fault_of(text, gates, [text]) is None and rule in notes[0] and len(notes) == 1
    for gates in (
        check_gates(None, "few_shot", [TEXT])[0],
        check_gates({"rules": [rule]}, "few_shot", [text])[0],
    ):
        assert fault_of(text, gates, [text])[0] == reason


@pytest.mark.parametrize("strategy", ["few_shot", "self_instruct", "evol_instruct"])
def test_no_shipped_seed_is_refused_by_the_gates_it_sets(strategy):
    files = sorted((pathlib.Path(__file__).parents[2] / "data" / "seeds").glob("*.jsonl"))
    assert len(files) == 12
    for path in files:
        texts = [p.problem for p in load_problems(path)]
        gates, _ = check_gates(None, strategy, texts)
        assert not [fault for text in texts if (fault := fault_of(text, gates, texts))]


@pytest.mark.parametrize(
    "gates",
    [
        {"min_word": 3},
        {"near": 0},
        {"near": None},
        {"rouge_l": 2},
        {"max_words": 2},
        {"keywords": "map"},
        {"starts": "map"},
        {"starts": ["("]},
        {"rules": ["apologies"]},
    ],
)
def test_gates_that_cannot_work_are_refused(gates):
    with pytest.raises(ValueError, match="gates"):
        check_gates(gates, "few_shot")


@pytest.mark.parametrize(
    ("question", "situation"),
    [
        ("Tom has 3 hats. He buys 2.  How many has he?", "Tom has 3 hats. He buys 2."),
        ("A pen costs $5.50. Find the cost of 3 pens.", "A pen costs $5.50."),
        ("How many hats are 3 and 4?", ""),
        ("Tom has a bag, which holds 3 hats. How many are 4 bags?", "Tom has a bag, which holds 3 hats."),
        ("How many hats has Tom? Give a whole number as the answer.", ""),
        ("Tom buys 3 hats. What does Dr. Low pay?", ""),
        ("", ""),
    ],
)
def test_a_situation_is_what_stands_before_the_one_question(question, situation):
    assert situation_of(question) == situation


def test_gain_counts_new_words_and_no_numbers():
    assert gain(TEXT.replace("9", "10"), TEXT) == 0
    assert gain(TEXT + " The pen costs 3 dollars.", TEXT) == 4


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("Here:\n```py\nx = 2\nprint(x)\n```\nIt prints 2.", "x = 2\nprint(x)"),
        ("```\nprint(1)\n```", "print(1)"),
        ("```python\nprint(1)", "print(1)"),  # never closed
        ("print(3)", "print(3)"),
        ("First ```python\nx = 1\n``` then\n```python\nprint(2)\n```\n```text\n2\n```", "print(2)"),
        ("```bash\nls\n```", None),
        ("The answer is 5.", None),
        ("5", None),
        ("```python\nprint(1\n```", None),
        ("", None),
    ],
)
def test_the_program_is_found_in_a_reply(reply, code):
    assert read_program(reply) == code


@pytest.mark.parametrize(
    ("stdout", "answer"),
    [
        ("42\n", "42"),
        ("\n 3.01 m \n\n", "3.01 m"),
        ("The answer is 7.\n", "7"),
        ("[[1, 2],\n [3, 4]]\n", "[[1, 2],\n [3, 4]]"),
        ("", None),
        ("  \n", None),
        ("1\n2\n", None),
        ("Total: 5\nSo \\boxed{5}\n", None),
        ("9" * 500, None),
    ],
)
def test_an_output_is_one_answer_or_none(stdout, answer):
    assert single_answer(stdout)[0] == answer


@pytest.mark.parametrize(
    ("answer", "hints", "kind"),
    [
        ("42", (), "number"),
        ("-1.5e-3", (), "number"),
        ("$1,250.50", ("number",), "number"),
        ("3/4", (), "number"),
        ("25%", (), "number"),
        ("3.01 m", ("quantity",), "quantity"),
        ("90 km/h", (), "quantity"),
        ("15 apples", ("number",), "number"),
        ("True", (), "yes_no"),
        ("2024-02-29", (), "date"),
        ("14:30", (), "time"),
        ("3:4", ("ratio",), "ratio"),
        ("[1, 2]", (), "list"),
        ("[[1, 2], [3, 4]]", (), "matrix"),
        ("[[1, 2], [3]]", (), "list"),
        ("(1, 2)", ("interval",), "interval"),
        ("{1, 2}", (), "set"),
        ("{'a': 1}", (), "dict"),
        ("B", ("option",), "option"),
        ("x**2 + 1", ("algebra",), "algebra"),
        ("Paris", ("text",), "text"),
        ("Paris", (), "text"),
        ("Paris", ("number",), None),
        ("None", (), None),
        ("nan", ("text",), None),
        ("The total cost of all the pens together", ("text",), None),
        ("Total cost: 15", ("text",), None),
    ],
)
def test_a_printed_answer_has_a_type(answer, hints, kind):
    assert type_of(answer, set(hints)) == kind


@pytest.mark.parametrize("domain", ["advanced_physics", "graph_discrete_math", "finance", "logic"])
def test_the_answers_of_the_shipped_seeds_have_their_declared_types(domain):
    seeds = load_problems(domain)
    hints = {seed.answer_type for seed in seeds}
    compatible = {("number", "quantity"), ("quantity", "number"), ("list", "set"), ("matrix", "list"),
                  ("list", "matrix"), ("set", "list")}  # fmt: skip
    for seed in seeds:
        found = type_of(seed.reference, hints)
        assert found == seed.answer_type or (found, seed.answer_type) in compatible, seed.id


def test_planted_errors_are_of_all_kinds_and_change_one_thing_each():
    code = "t = 0\nfor i in range(1, 10):\n    if i < 5:\n        t += i * 2 + 0.5\nprint(f'{t:.2f}')\n"
    errors = planted_errors(code)
    assert {kind for kind, _ in errors} == {"constant", "operator", "off_by_one"}
    same = ast.unparse(ast.parse(code))
    for _, mutant in errors:
        changed = [(a, b) for a, b in zip(same.split("\n"), mutant().split("\n"), strict=True) if a != b]
        assert len(changed) == 1, mutant()
    assert len({mutant() for _, mutant in errors}) == len(errors)
    assert planted_errors("no python (") == [] and planted_errors("print('a' 'b')") == []


def test_planted_errors_are_written_only_when_they_are_asked_for(monkeypatch):
    written = []
    monkeypatch.setattr(ast, "unparse", lambda tree: written.append(tree) or "")
    errors = planted_errors("\n".join(f"a{i} = {i} + {i} * 2" for i in range(400)))
    errors[0][1]()
    assert len(errors) == 2000 and len(written) == 1


def test_a_program_too_long_to_be_parsed_in_passing_is_none():
    assert read_program("```python\n" + "x = 0\n" * 20_000 + "print(x)\n```") is None


def test_operators_are_data_and_wrong_ones_are_named():
    own = {"name": "mine", "text": "Add a twist."}
    assert [operator.name for operator in parse_operators(["deepen", own])] == ["deepen", "mine"]
    assert len(parse_operators(None)) == len(OPERATORS) >= 8
    for wrong in (["depen"], [], [{"name": "x"}], ["deepen", "deepen"], [3]):
        with pytest.raises(ValueError, match="operator"):
            parse_operators(wrong)
    with pytest.raises(TypeError, match="list"):
        parse_operators("deepen")


def test_chains_stand_side_by_side_and_do_not_move_when_more_attempts_are_asked():
    places = [place_in_chain(attempt, lag=2, rounds=3) for attempt in range(12)]
    assert places[:6] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert places[6:] == [(2, 0), (3, 0), (2, 1), (3, 1), (2, 2), (3, 2)]


@pytest.mark.parametrize(
    ("places", "attempts", "n", "lag"),
    [
        (1, 10_000, None, 8),  # an embedded model
        (2, 10_000, None, 8),
        (16, 10_000, None, 512),
        (16, 600, None, 300),  # half of them look back
        (16, 40, None, 128),  # few attempts, all at once
        (100, 150, None, 800),
        (100, 500, 100, 100),  # what is made beyond the problems wanted looks back
        (16, 20, 4, 8),
        (16, 50_000, 10_000, 512),
    ],
)
def test_the_lag_of_a_new_folder_follows_the_places_and_how_much_is_wanted(places, attempts, n, lag):
    assert fitting_lag(places, attempts, n) == lag


def test_words_keep_numbers_whole():
    assert words_of("1,250.5 kg, 3/4 and U2028\u2028x") == ["1,250.5", "kg", "3/4", "and", "u", "2028", "x"]


@pytest.mark.parametrize(
    ("text", "signs"),
    [
        ("What is 7 + 5 * (3 - 1)?", "+*(-)"),
        ("Solve 3x-2y = 5 for [x, y].", "-=[]"),
        ("Is 2**3 <= 3^2?", "**<=^"),
        ("A well-known T-shirt (blue) costs 5 dollars/piece on 3 and/or twenty-five days.", ""),
    ],
)
def test_operators_and_brackets_are_words_of_a_formula_and_of_no_prose(text, signs):
    assert "".join(word for word in words_of(text) if not word[0].isalnum()) == signs


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("What is the remainder of 7 + 5 * 3?", "What is the remainder of 7 * 5 - 3?", False),
        ("Solve x^2 + 2x - 5 = 0 for x.", "Solve x / (2 + x) = 5 * x for x.", False),
        ("Find the root of x^3 + 2*x - 5 = 0 to 3 decimals.",
         "Find the root of x^3 / (2 + x) - 5 * x = 0 to 3 decimals.", False),
        ("What is the remainder of 7 + 5 * 3?", "What is the remainder of 9 + 4*12?", True),
        ("Solve x^2 + 2x - 5 = 0 for x.", "Solve x ^ 2 + 7x - 1 = 0 for x.", True),
    ],
)  # fmt: skip
def test_another_formula_in_the_same_words_is_another_question(one, other, alike):
    index = Novelty(near=0.7)
    index.add("a", one)
    assert bool(list(index.like(other))) == alike


def test_an_attempt_that_could_repeat_one_without_a_decision_has_none_either():
    question, other = TEXT, " ".join(f"word{n}" for n in range(30))

    async def outcome(asked, stopped):
        pool = Pool(Novelty.of_gates(check_gates(None, "few_shot", [])[0]))
        pool.ask(1, question)
        if asked is not None:
            pool.ask(0, asked)
        waiting = asyncio.create_task(pool.taken(1, question, []))
        await asyncio.sleep(0)
        if stopped:
            pool.abandon(0, NotStarted())
        else:
            pool.settle(0, None)
        return await waiting

    for asked in (None, question):
        with pytest.raises(NotStarted):
            asyncio.run(outcome(asked, True))
        assert asyncio.run(outcome(asked, False)) is None
    assert asyncio.run(outcome(other, True)) is None
