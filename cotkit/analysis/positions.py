"""Whether a model that compares two traces prefers a place: the same pairs asked in both orders.

first place preferred   share of its choices that name the trace that stands first; 0.5 without a bias,
                        however good the traces, since each stands first once
same choice             share of the pairs in which both orders prefer the same trace (or none)
right one chosen        share of its answers that name the right trace, where one is right and one wrong

After the position bias of Zheng et al. (2023), arXiv 2306.05685, section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cotkit.analysis.diagnosis import unfinished
from cotkit.analysis.distillation import interval_columns
from cotkit.analysis.intervals import Rate
from cotkit.runs import Run
from cotkit.shown import Shown, mended_frame

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class PositionBias(Shown):
    """What `compare_traces` found.

    answers  one line an answer: pair, problem, order (1 = swapped), better ("first", "second", "equal";
             missing where the model failed), trace (0 or 1, the one it prefers; missing = none), right (which
             trace is right, where one is right and one wrong)
    table    one line a measure: measure, value with interval, n, reading
    failed   share of the answers that failed; they and their pairs are in no measure
    missing  what was not asked, and why; "" = nothing
    """

    model: str
    answers: pandas.DataFrame
    table: pandas.DataFrame
    failed: Rate
    missing: str = ""

    @classmethod
    def of(cls, model: str, run: Run) -> PositionBias:
        lines = [
            line | {"pair": row.id, "problem": row.metadata["problem_id"]}
            for row in run.records()
            for line in row.metadata.get("answers", ())
        ]
        names = ["pair", "problem", "order", "better", "trace", "right"]
        answers = mended_frame(lines, names).astype({"trace": "Int64", "right": "Int64"})
        failed = Rate.of_flags(answers["better"].isna())
        missing = unfinished(run, answers["pair"].nunique(), "pairs")
        whole = answers.groupby("pair")["better"].transform("count") == 2  # both orders were answered
        return cls(model, answers, _measures(answers[whole]), failed, missing)

    def findings(self) -> list[str]:
        """What the table says, in sentences with counts and intervals."""
        said = [f"The comparison is not complete: {self.missing}."] if self.missing else []
        if self.failed.successes:
            whole = (self.answers.groupby("pair")["better"].count() == 2).sum()
            said.append(
                f"It failed in {self.failed.in_words('comparisons')}. Only pairs answered in both orders are "
                f"measured: {whole:,} of {self.answers['pair'].nunique():,}."
            )
        return said + [f"{line.reading}." for line in self.table.itertuples() if line.n]

    def shown(self) -> dict[str, Any]:
        return {"model": self.model, "findings": self.findings()}


def _measures(answers: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    chose = answers[answers["trace"].notna()]
    first = Rate.of_grouped(chose["better"] == "first", chose["problem"])
    place = "first" if first.low > 0.5 else "second" if first.high < 0.5 else None
    sure = f"it prefers the {place} place" if place else "no preference of a place is shown"
    traces = answers.assign(trace=answers["trace"].fillna(-1)).groupby(["pair", "problem"])["trace"].nunique()
    same = Rate.of_grouped(traces == 1, traces.index.get_level_values("problem"))
    split = answers[answers["right"].notna()]
    right = Rate.of_grouped((split["trace"] == split["right"]).fillna(False).to_numpy(bool), split["problem"])
    lines = (
        ("first place preferred", first, f"The first of two traces is called better in {{}}: {sure}"),
        ("same choice", same, "Asked in both orders it makes the same choice in {}"),
        ("right one chosen", right, "Where one of two traces is right, it names that one in {}"),
    )
    nouns = ("choices", "pairs", "answers")
    return pandas.DataFrame(
        {"measure": name, **interval_columns("value", rate), "n": rate.n}
        | {"reading": words.format(rate.in_words(noun))}
        for (name, rate, words), noun in zip(lines, nouns, strict=True)
    )
