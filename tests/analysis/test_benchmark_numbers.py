"""A benchmark's frames against numbers worked out another way: by hand, by brute force, by simulation."""

from __future__ import annotations

import itertools
import json
import math
import random
import tracemalloc
from fractions import Fraction

import numpy as np
import pandas
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from synthetic_rows import candidate, row

from cotkit.analysis import (
    BenchmarkReport,
    Rate,
    bootstrap_interval,
    figures,
    paired_difference,
    wilson_interval,
)
from cotkit.analysis import benchmark as benchmark_numbers
from cotkit.analysis.benchmark import (
    _mean_of_domains,
    _mean_over_problems,
    holm,
    paired_completions,
    sign_flip_test,
)
from cotkit.runs import Run

CODES = {
    "r": True,
    "w": False,
    "-": False,
    "t": False,
    "?": None,
}  # right, wrong, no answer, truncated, undecided


def run_of(folder, problems, *, given=None, stopped=None, seconds=8.0, ledger=None, answer="41"):
    """A run folder from {id: (domain, outcomes)}; "x" stands for a call that failed."""
    rows = []
    for number, (id, (domain, codes)) in enumerate(problems.items()):
        made = [
            candidate(
                CODES[code],
                answer=None if code in "-t" else answer,
                truncated=code == "t",
                sample_index=sample,
                accepted=code == "r",
                call={
                    "usage": {"prompt_tokens": 5, "completion_tokens": 10, "cost_usd": 0.25},
                    "latency_s": 1.0,
                },
            )
            for sample, code in enumerate(codes)
            if code != "x"
        ]
        errors = [{"stage": "draft", "kind": "timeout", "message": "slow"}] * codes.count("x")
        rows.append(row(number, made, id=id, type=domain, errors=errors))
    asked = max(len(codes) for _, codes in problems.values())
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"config": {"num_generations": asked}}))
    for name, kept in (("rows.jsonl", True), ("drops.jsonl", False)):
        lines = [r.model_dump_json() + "\n" for r in rows if r.accepted is kept]
        (folder / name).write_text("".join(lines))
    given = given or len(rows)
    report = {"given": given, "complete": given == len(rows), "stopped": stopped, "seconds": seconds}
    (folder / "report.json").write_text(json.dumps(report | {"ledger": ledger or {}}))
    return Run(folder)


def report_of(tmp_path, ks=(1,), **models):
    return BenchmarkReport.from_runs({name: run_of(tmp_path / name, p) for name, p in models.items()}, ks)


def test_every_completion_has_one_outcome_and_only_decided_ones_count(tmp_path):
    report = report_of(
        tmp_path,
        m={"a": ("chem", "r"), "b": ("chem", "w"), "c": ("chem", "-"), "d": ("chem", "t"), "e": ("chem", "?")}
        | {"f": ("chem", "x"), "g": ("bio", "r")},
    )
    lines = report.table.set_index("domain")
    chem, total = lines.loc["chem"], lines.loc["all problems"]
    assert [chem[o] for o in ("right", "wrong", "no_answer", "truncated", "undecided", "failed")] == [1] * 6
    assert (chem["n"], chem["accuracy"]) == (4, 0.25) and (total["n"], total["accuracy"]) == (5, 0.4)
    assert (total["accuracy_low"], total["accuracy_high"]) == pytest.approx(wilson_interval(2, 5))
    assert lines.loc["mean of domains", "accuracy"] == pytest.approx((0.25 + 1) / 2)
    assert report.errors.set_index("outcome").loc["failed", "kind"] == "timeout"


def test_a_domain_where_nothing_is_decided_is_in_no_mean(tmp_path):
    report = report_of(tmp_path, m={"a": ("x", "r"), "b": ("x", "w"), "c": ("y", "?")})
    lines = report.table.set_index("domain")
    assert math.isnan(lines.loc["y", "accuracy"]) and lines.loc["y", "n"] == 0
    assert lines.loc["mean of domains", "accuracy"] == 0.5 and lines.loc["mean of domains", "undecided"] == 1


@pytest.mark.parametrize(
    ("size", "truth"), [(6, [0.05, 0.3, 0.6, 0.9]), (2, [0.25] * 16), (3, [0.05] * 12), (20, [0.1, 0.8, 0.5])]
)
def test_the_interval_of_a_mean_of_domains_holds_the_truth_95_times_in_100(size, truth):
    rng, hits = np.random.default_rng(0), 0
    for right in rng.binomial(size, truth, (1000, len(truth))):
        line = _mean_of_domains("m", [_part(r, size) for r in right])
        hits += line["accuracy_low"] <= np.mean(truth) <= line["accuracy_high"]
    assert 0.92 < hits / 1000 < 0.995


def _part(right, n):
    counts = {"problems": n} | dict.fromkeys(
        ("right", "wrong", "no_answer", "truncated", "undecided", "failed"), 0
    )
    return counts | {"n": n, "accuracy": right / n}


def brute_pass_at_k(flags, k):
    draws = list(itertools.combinations(flags, k))
    return sum(any(draw) for draw in draws) / len(draws)


def test_pass_at_k_is_the_mean_over_all_ways_to_draw_k(tmp_path):
    codes = {"a": "rwww", "b": "rrww", "c": "wwww", "d": "rrrr", "e": "rw-t", "f": "rw?x"}
    report = report_of(tmp_path, (1, 2, 4), m={id: ("x", c) for id, c in codes.items()})
    flags = {id: [c == "r" for c in text if c in "rw-t"] for id, text in codes.items()}
    for line in report.passk.itertuples():
        usable = [f for f in flags.values() if len(f) >= line.k]
        assert line.pass_at_k == pytest.approx(np.mean([brute_pass_at_k(f, line.k) for f in usable]))
        assert line.problems == len(usable) and line.left_out == 6 - len(usable)
        assert line.pass_at_k_low <= line.pass_at_k <= line.pass_at_k_high
    assert report.passk["left_out"].tolist() == [0, 0, 1]


def test_intervals_over_problems_are_as_wide_as_the_bootstraps():
    rng = np.random.default_rng(1)
    values = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], 80, p=[0.3, 0.2, 0.1, 0.2, 0.2])
    found, (low, high) = _mean_over_problems(values, 320), bootstrap_interval(values)
    assert found.high - found.low == pytest.approx(high - low, rel=0.12)
    assert found.value == pytest.approx(values.mean())


def test_nobody_right_is_no_certainty():
    found = _mean_over_problems([0.0] * 8, 32)
    assert (found.low, found.high) == pytest.approx(wilson_interval(0, 8))


def test_completions_of_one_problem_do_not_narrow_the_interval(tmp_path):
    alike = {f"p{i}": ("x", "rrrr" if i % 2 else "wwww") for i in range(12)}
    single = {f"p{i}": ("x", "r" if i % 2 else "w") for i in range(12)}
    four, one = report_of(tmp_path, four=alike, one=single).table.query("domain == 'x'").itertuples()
    assert four.n == 48 and one.n == 12
    assert (four.accuracy_low, four.accuracy_high) == pytest.approx(
        (one.accuracy_low, one.accuracy_high), abs=0.02
    )


def binomial_mcnemar(gained, lost):
    n, extreme = gained + lost, max(gained, lost)
    if not n:
        return 1.0
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(extreme, n + 1)) / 2**n)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (5, 1), (9, 2), (12, 12), (0, 8)])
def test_mcnemars_p_is_the_binomial_one_with_one_completion_and_by_sign_flips(tmp_path, gained, lost):
    outcomes = ["wr"] * gained + ["rw"] * lost + ["rr"] * 5 + ["ww"] * 3
    sides = [{f"p{i}": ("x", pair[side]) for i, pair in enumerate(outcomes)} for side in (0, 1)]
    (line,) = report_of(tmp_path, first=sides[0], second=sides[1]).differences.itertuples()
    assert (line.gained, line.lost, line.n) == (gained, lost, len(outcomes))
    assert line.difference == pytest.approx((gained - lost) / len(outcomes))
    assert line.p_value == pytest.approx(binomial_mcnemar(gained, lost))
    assert sign_flip_test([1] * gained + [-1] * lost + [0] * 8) == pytest.approx(line.p_value)


@pytest.mark.parametrize("steps", [[3, -1, 2, 0, 1], [4, 4, 4], [-2, 1, 1], []])
def test_the_sign_flip_test_counts_every_pattern(steps):
    sums = [
        abs(sum(s * x for s, x in zip(signs, steps, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(steps))
    ]
    assert sign_flip_test(steps) == pytest.approx(np.mean([total >= abs(sum(steps)) for total in sums]))


def steps_of(n, lengths, seed=0):
    """Differences of shares right, over completions of which some are undecided."""
    rng = random.Random(seed)
    shares = [Fraction(rng.randint(0, k), k) for k in rng.choices(lengths, k=2 * n)]
    return [now - before for before, now in zip(shares[:n], shares[n:], strict=True)]


@pytest.mark.parametrize("n, lengths", [(9, (2, 3)), (30, (5, 6, 7, 8)), (200, (4,))])
def test_drawn_sign_patterns_agree_with_all_of_them(monkeypatch, n, lengths):
    for seed in range(8):
        steps = steps_of(n, lengths, seed)
        with monkeypatch.context() as patched:
            patched.setattr(benchmark_numbers, "_drawn_flips", None)
            exact = sign_flip_test(steps)
            patched.undo()
            patched.setattr(benchmark_numbers, "EXACT", 0)
            drawn = sign_flip_test(steps)
        error = math.sqrt(exact * (1 - exact) / benchmark_numbers.FLIPS)
        assert drawn == pytest.approx(exact, abs=5 * error + 2 / benchmark_numbers.FLIPS)


@pytest.mark.parametrize(
    "n, lengths", [(3, range(17, 33)), (24, range(9, 17)), (200, range(9, 17)), (3000, range(33, 65))]
)
def test_many_completions_of_many_problems_are_compared_in_bounded_memory_and_steps(monkeypatch, n, lengths):
    whole, work = benchmark_numbers._all_flips, []
    monkeypatch.setattr(
        benchmark_numbers, "_all_flips", lambda s: work.append(len(s) * sum(map(abs, s))) or whole(s)
    )
    steps = steps_of(n, lengths)
    tracemalloc.start()
    p = sign_flip_test(steps)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < p <= 1 and peak < 64e6 and sum(work) <= benchmark_numbers.EXACT
    assert sign_flip_test(steps) == p, "what is drawn is drawn alike"


def test_shares_that_are_equal_do_not_differ_by_the_last_digit():
    third = [[[True] * n + [False] * 2 * n for n in side] for side in ((1, 11, 16), (21, 13, 19))]
    gap = paired_completions(*third)
    assert (gap["gained"], gap["lost"], gap["difference"], gap["p_value"]) == (0, 0, 0.0, 1.0)


def test_models_that_left_no_run_are_still_reported():
    report = BenchmarkReport.from_runs({}, failed={"m": "no such endpoint"})
    first, last = report.findings()
    assert first.startswith("m is not complete (no such endpoint): it gave no completion.")
    assert last == "No model finished a problem, so there is nothing to compare."
    assert "no such endpoint" in report._repr_html_() and report.cost.empty and "calls" in report.cost


def test_a_paired_difference_of_several_completions_holds_the_truth_95_times_in_100():
    rng, hits = np.random.default_rng(2), 0
    for _ in range(600):
        ease = rng.beta(1, 1, 30)
        first, second = (rng.random((30, 4)) < np.clip(ease + shift, 0, 1)[:, None] for shift in (0, 0.15))
        gap = paired_completions(first.tolist(), second.tolist())
        hits += gap["difference_low"] <= 0.139 <= gap["difference_high"]  # E[min(u + 0.15, 1) - u]
    assert 0.92 < hits / 600 < 0.995


@pytest.mark.parametrize(
    "first, second, difference",
    [
        ([[True, False]] * 20, [[True, True]] * 20, 0.5),  # each problem gains half of its completions
        ([[True, False, False]] * 2, [[True, True, False]] * 2, 1 / 3),
        ([[True, True, False]] * 30, [[True, False, False]] * 30, -1 / 3),
        ([[True, False]], [[False, False]], -0.5),
        ([[True, False]] * 9, [[False, True]] * 9, 0.0),
    ],
)
def test_where_all_problems_differ_alike_the_estimate_lies_in_an_interval_that_is_no_point(
    first, second, difference
):
    gap, n = paired_completions(first, second), len(first)
    low, high = gap["difference_low"], gap["difference_high"]
    assert gap["difference"] == pytest.approx(difference)
    assert low - 1e-12 <= difference <= high + 1e-12 and high - low > 0.05
    whole, each = paired_difference([difference < 0] * n, [difference > 0] * n), abs(difference) or 1
    assert (low, high) == pytest.approx((whole.low * each, whole.high * each))


def test_models_are_compared_on_the_problems_decided_for_both(tmp_path):
    first = {"a": ("x", "r"), "b": ("x", "?"), "c": ("x", "w"), "d": ("x", "x")}
    second = {"a": ("x", "w"), "b": ("x", "r"), "c": ("x", "w"), "d": ("x", "r")}
    (line,) = report_of(tmp_path, first=first, second=second).differences.itertuples()
    assert (line.n, line.gained, line.lost) == (2, 0, 1)


def test_no_common_problem_is_no_difference(tmp_path):
    report = report_of(tmp_path, one={"a": ("x", "r")}, two={"b": ("x", "w")})
    (line,) = report.differences.itertuples()
    assert line.n == 0 and math.isnan(line.difference_low) and math.isnan(line.p_holm) and not line.clear


def test_holm_multiplies_by_what_is_left_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, float("nan"), 0.5]) == pytest.approx([1.0, float("nan"), 1.0], nan_ok=True)


def test_all_pairs_of_three_models_are_corrected_together(tmp_path):
    def outcomes(codes):
        return {f"p{i}": ("x", c) for i, c in enumerate(codes)}

    report = report_of(
        tmp_path, a=outcomes("w" * 20), b=outcomes("r" * 8 + "w" * 12), c=outcomes("r" * 9 + "w" * 11)
    )
    lines = report.differences
    assert lines[["first", "second"]].to_numpy().tolist() == [["a", "b"], ["a", "c"], ["b", "c"]]
    p = lines["p_value"].tolist()
    assert lines["p_holm"].tolist() == pytest.approx([2 * p[0], 3 * p[1], p[2]])
    assert lines["clear"].tolist() == [True, True, False]


def test_cost_is_told_by_problem_and_by_solved_problem(tmp_path):
    totals = {
        "calls": 4,
        "cached": 0,
        "failed": {},
        "prompt_tokens": 20,
        "completion_tokens": 60,
        "cost_usd": 3.0,
    }
    ledger = {**totals, "unknown_usage": 0, "unknown_cost": 0, "by_role": {"generator": totals}}
    run = run_of(tmp_path / "m", {id: ("x", c) for id, c in zip("abcd", "rrrw", strict=True)}, ledger=ledger)
    (line,) = BenchmarkReport.from_runs({"m": run}).cost.itertuples()
    assert (line.tokens_per_problem, line.usd_per_problem, line.seconds_per_problem) == (15, 0.75, 2)
    assert (line.tokens_per_solved, line.usd_per_solved) == (20, 1.0)
    assert (line.solved, line.solved_share) == (3, 0.75)


def test_an_accuracy_over_few_decided_answers_says_how_far_the_undecided_could_move_it(tmp_path):
    problems = {"a": ("x", "r"), "b": ("x", "?"), "c": ("x", "?"), "d": ("x", "?")}
    findings = " ".join(BenchmarkReport.from_runs({"m": run_of(tmp_path / "m", problems)}).findings())
    assert "3 undecided (with the undecided all wrong or all right: 25 to 100 %)." in findings


def test_a_domain_called_like_a_total_is_told_from_it(tmp_path):
    problems = {"a": ("all problems", "r"), "b": ("mean of domains", "w")}
    table = BenchmarkReport.from_runs({"m": run_of(tmp_path / "m", problems)}).table
    assert table["domain"].tolist() == [
        "all problems (domain)",
        "mean of domains (domain)",
        "mean of domains",
        "all problems",
    ]


def test_what_verifying_took_is_not_booked_on_the_model(tmp_path):
    own = {"calls": 4, "cached": 0, "failed": {}, "prompt_tokens": 20, "completion_tokens": 16}
    own |= {"cost_usd": 1.0, "unknown_usage": 0, "unknown_cost": 0}
    verifier = {**own, "calls": 8, "completion_tokens": 512, "cost_usd": 5.0, "unknown_usage": 1}
    both = {**own, "calls": 12, "completion_tokens": 528, "cost_usd": 6.0, "unknown_usage": 1}
    ledger = {**both, "by_role": {"generator": own, "verifier": verifier}}
    report = BenchmarkReport.from_runs(
        {"m": run_of(tmp_path / "m", dict.fromkeys("abcd", ("x", "r")), ledger=ledger)}
    )
    (line,) = report.cost.itertuples()
    assert (line.calls, line.completion_tokens, line.cost, line.unknown_usage) == (4, 16, "$1", 0)
    assert (line.tokens_per_solved, line.usd_per_solved) == (4, 0.25)
    assert (line.verifier_calls, line.verifier_completion_tokens, line.verifier_cost_usd) == (8, 512, 5.0)
    findings = " ".join(report.findings())
    assert "m: 4 calls, 16 completion tokens, 4 a solved problem, cost $1." in findings
    assert "8 more calls and at least 512 completion tokens" in findings


def test_unknown_cost_stays_unknown_and_nothing_solved_has_no_price(tmp_path):
    totals = {
        "calls": 1,
        "cached": 0,
        "failed": {},
        "prompt_tokens": None,
        "completion_tokens": None,
        "cost_usd": None,
    }
    ledger = {**totals, "unknown_usage": 1, "unknown_cost": 1, "by_role": {"generator": totals}}
    (line,) = BenchmarkReport.from_runs(
        {"m": run_of(tmp_path / "m", {"a": ("x", "w")}, ledger=ledger)}
    ).cost.itertuples()
    assert line.cost == "unknown" and math.isnan(line.tokens_per_problem) and math.isnan(line.usd_per_solved)


def test_a_frequent_fault_is_told_with_its_count_and_interval_over_problems(tmp_path):
    report = report_of(tmp_path, m={f"p{i}": ("x", "--" if i < 3 else "rr") for i in range(12)})
    said = next(s for s in report.findings() if "no answer that could be found" in s)
    rate = Rate.of_grouped([i < 6 for i in range(24)], [i // 2 for i in range(24)])
    assert (
        f"in 6 of 24 completions (25 %, 95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f} %)"
        in said
    )
    assert rate.high - rate.low > Rate.of(6, 24).high - Rate.of(6, 24).low  # two of a problem are alike


def test_problems_nobody_solves_are_doubtful_most_of_all_where_models_agree(tmp_path):
    problems = {"a": ("x", "w"), "b": ("x", "w"), "c": ("x", "r")}
    runs = {
        "one": run_of(tmp_path / "one", problems, answer="0.5"),
        "two": run_of(tmp_path / "two", problems | {"b": ("x", "-"), "c": ("x", "w")}, answer=r"\frac{1}{2}"),
    }
    report = BenchmarkReport.from_runs(runs)
    found = report.disagreements.set_index("id")
    assert list(found.index) == ["a", "b", "c"]
    assert found["kind"].tolist() == ["nobody solves it"] * 2 + ["split"]
    assert found["given_by"].tolist() == [2, 1, 1] and found.loc["c", "solved_by"] == "one"
    doubt = report.findings()[-1]
    assert "Nobody solves 2 of 3" in doubt and "on 1 of them models agree" in doubt
    assert "reference is wrong" in doubt


def test_a_run_that_stopped_is_told_with_its_reason(tmp_path):
    runs = {
        "whole": run_of(tmp_path / "whole", {"a": ("x", "r"), "b": ("x", "w")}),
        "part": run_of(tmp_path / "part", {"a": ("x", "r")}, given=2, stopped="budget_calls=1 is spent"),
        "down": run_of(tmp_path / "down", {"a": ("x", "x"), "b": ("x", "x")}),
    }
    report = BenchmarkReport.from_runs(runs, failed={"down": "its disk is full"})
    assert report.failed == {"part": "budget_calls=1 is spent", "down": "its disk is full"}
    unfinished = report.errors[report.errors["outcome"] == "unfinished"]
    assert unfinished[["model", "completions"]].to_numpy().tolist() == [["part", 1]]
    assert "budget_calls=1 is spent" in report._repr_html_() and "2 not complete" in repr(report)
    assert any("part is not complete (budget_calls=1 is spent): 1 of" in text for text in report.findings())


def test_runs_of_different_problems_are_refused(tmp_path):
    one = run_of(tmp_path / "one", {"a": ("x", "r")})
    two = run_of(tmp_path / "two", {"b": ("x", "r"), "a": ("x", "r")})
    with pytest.raises(ValueError, match=r"problem 'a' of 'two' is another"):
        BenchmarkReport.from_runs({"one": one, "two": two})


def test_a_clear_difference_is_claimed_and_an_unclear_one_is_not(tmp_path):
    def outcomes(right):
        return {f"p{i}": ("x", "r" if i < right else "w") for i in range(30)}

    clear = " ".join(report_of(tmp_path / "1", big=outcomes(25), small=outcomes(5)).findings())
    assert "big is right more often than small: 67 points" in clear and "Holm's p < 0.001" in clear
    unclear = " ".join(report_of(tmp_path / "2", big=outcomes(17), small=outcomes(15)).findings())
    assert (
        "more often" not in unclear and "Not told apart by these problems: big and small (7 points" in unclear
    )


def synthetic(tmp_path, models, domains=6, per_domain=3, generations=4):
    chance = random.Random(3)

    def outcomes(skill):
        codes = lambda: "".join(chance.choices("rw-t?x", [skill, 0.7, 0.2, 0.1, 0.1, 0.05], k=generations))  # noqa: E731
        return {
            f"d{d}-{i}": (f"domain_{d}_with_a_name", codes())
            for d in range(domains)
            for i in range(per_domain)
        }

    return report_of(
        tmp_path, (1, 2, 4)[:generations], **{m: outcomes(0.3 + k) for k, m in enumerate(models)}
    )


FIGURES = {
    "accuracy_map": "table",
    "model_differences": "differences",
    "passk": "passk",
    "solved_cost": "cost",
    "outcomes": "errors",
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("models", [["one"], ["org/a-model-with-a-long-name-7b", "b$1$", "c"]])
def test_figures_are_drawn_with_nothing_cut_off(tmp_path, name, models):
    from test_analysis_figures import visible_texts

    report = synthetic(tmp_path, models)
    figure = getattr(figures, name)(getattr(report, FIGURES[name]))
    FigureCanvasAgg(figure).draw()
    page = figure.bbox
    for text in visible_texts(figure):
        box = text.get_window_extent()
        inside = (
            page.x0 - 1 <= box.x0
            and box.x1 <= page.x1 + 1
            and page.y0 - 1 <= box.y0
            and box.y1 <= page.y1 + 1
        )
        assert inside, f"{text.get_text()!r} is cut off"


@pytest.mark.parametrize("name", FIGURES)
def test_figures_without_data_say_so(tmp_path, name):
    empty = BenchmarkReport.from_runs({"m": run_of(tmp_path / "m", {"a": ("x", "x")})}, ks=(1,))
    figure = getattr(figures, name)(getattr(empty, FIGURES[name]))
    FigureCanvasAgg(figure).draw()
    nothing = BenchmarkReport.from_runs({})
    FigureCanvasAgg(getattr(figures, name)(getattr(nothing, FIGURES[name]))).draw()


def test_the_map_says_accuracy_interval_n_and_undecided_in_every_cell(tmp_path):
    report = report_of(tmp_path, m={f"p{i}": ("chem", c) for i, c in enumerate("rrrw?")})
    text = [t.get_text() for t in figures.accuracy_map(report.table).axes[0].texts]
    low, high = (100 * x for x in wilson_interval(3, 4))
    assert text[:2] == ["75 %", f"{low:.0f}\N{EN DASH}{high:.0f}, n 4, 1?"]


def test_frames_are_plain_dataframes(tmp_path):
    report = synthetic(tmp_path, ["a", "b"])
    for name in FIGURES.values():
        assert isinstance(getattr(report, name), pandas.DataFrame) and len(getattr(report, name))
