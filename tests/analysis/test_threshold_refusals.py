"""What thresholds cannot be tuned on, what is checked before a run is made, what is said of few labels."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from scored import scored
from synthetic_rows import candidate, row

from cotkit.analysis import check_tuning, panel_table, tune_thresholds
from cotkit.judge import StepJudge, Thresholds
from cotkit.records import Judgement
from cotkit.rules import RULES, seal


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"target_precision": 90}, "target_precision must lie between 0 and 1"),
        ({"delta": 0}, "delta must lie between 0 and 1"),
        ({"rule": "vote"}, "unknown rule 'vote'"),
        ({"iteration": -1}, "iteration must be a whole number"),
        ({"costs": (1,)}, "costs must be"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"verifier_errors": {"false_accept": (0, 0), "false_reject": (0, 1)}}, "false_accept"),
    ],
)
def test_options_are_refused_alike_with_and_without_data(option, says):
    for refuses in (check_tuning, lambda **known: tune_thresholds(scored(20, 1), **known)):
        with pytest.raises(ValueError, match=says):
            refuses(**option)


def test_two_columns_of_one_name_are_refused():
    frame = scored(60, 1)
    for twice in (frame["score_form"], frame["correct"], frame["id"]):
        with pytest.raises(ValueError, match=f"two columns {twice.name!r}"):
            tune_thresholds(pd.concat([frame, twice], axis=1))


@pytest.mark.parametrize("rule", RULES)
def test_a_saved_certificate_holds_until_the_file_is_edited(rule, tmp_path):
    judge = StepJudge()
    frame = scored(300, 1, power=(3.0, 3.0, 3.0), names=judge.dimension_names)
    report = tune_thresholds(frame, target_precision=0.7, rule=rule, judge=judge, resamples=2)
    path = report.save(tmp_path / "thresholds.json")
    written = json.loads(path.read_text())
    assert written["certified"] and written["seal"] == seal(written)
    assert Thresholds.for_judge(path, judge).certificate["certified"] is True
    path.write_text(json.dumps(written | {"target_precision": 0.99}))
    with pytest.warns(UserWarning, match="edited by hand"):
        assert Thresholds.for_judge(path, judge).certificate["certified"] is False


def panel_rows():
    made = []
    for number in range(100):
        right = number % 2 == 0
        members = {
            name: Judgement(scores={name: 0.2 + 0.5 * right * (name == "a") + number % 3 / 10}, judge=name)
            for name in ("a", "b")
        }
        one = candidate(right, scores={"a": members["a"].scores["a"], "b": members["b"].scores["b"]})
        raw = {name: member.model_dump() for name, member in members.items()}
        one.judgement = one.judgement.model_copy(update={"judge": "panel", "raw": raw})
        made.append(row(number, [one]))
    return made


def test_judges_are_combined_only_where_the_tune_split_is_known_by_problem():
    from cotkit.analysis import candidates_frame

    rows = panel_rows()
    frame = candidates_frame(rows)
    by_id = panel_table(tune_thresholds(frame, resamples=2), rows)
    assert by_id["n"].tolist() == [60] * len(by_id) and not by_id.empty
    for group in (None, "index"):
        assert panel_table(tune_thresholds(frame, group=group, resamples=2), rows).empty


def test_dimensions_of_one_judge_are_no_judges():
    from cotkit.analysis import candidates_frame

    rows = [row(n, [candidate(n % 2 == 0, scores={"a": n % 3 / 2, "b": n % 5 / 4})]) for n in range(100)]
    report = tune_thresholds(candidates_frame(rows), resamples=2)
    assert panel_table(report, rows).empty and not panel_table(report).empty


def test_traces_that_a_few_problems_hold_are_said_to_be_worth_few():
    many = pd.concat([scored(60, 1), *(scored(5, 20, seed=2).assign(id=lambda f: "x" + f["id"]),)])
    said = " ".join(tune_thresholds(many, resamples=2).findings())
    assert "A few problems hold most traces" in said
    assert "A few problems" not in " ".join(tune_thresholds(scored(60, 1), resamples=2).findings())
