"""Numbers, figures and findings from finished runs. Reads rows and reports; never calls a model.

    intervals.py     rates, paired differences and AUC with their uncertainty
    candidates.py    the traces of rows: which are the model's own; the frame analysis starts from
    selfscores.py    scores that need no judge: how many drafts agree on the answer
    scored_sources.py  the frame that thresholds are tuned on: candidates of runs, or a file of scored rows
    diagnosis.py     a judge's noise and biases, how far it is fooled
    panels.py        what judges are worth together: median, minimum, majority, learned weights
    positions.py     whether a model that compares two traces prefers the first
    distillation.py  funnel, acceptance, accuracy, types, scores, the judge's agreement with the verdict
    cost.py          calls, tokens, money and latency
    benchmark.py     models on the same problems: accuracy, pass@k, differences, cost, disagreements
    tuning.py        thresholds for a stated precision, with a certificate (certificate.py, paths.py,
                     calibration.py, agreement.py)
    cycles.py        self-improvement: challenger against champion, format and reasoning, families
    cycle_tables.py  its tables and findings
    alarms.py        its alarms: collapse, reward hacking, judge drift, ceiling
    drafts.py        the first drafts that both look at
    strategies.py    ways to make problems compared (with diversity.py, difficulty.py, kernels.py)
    mixes.py         the mix of them that reaches a target at the least cost
    conclusions.py   findings in sentences, and examples to look at
    figures.py       one figure for each of these frames
    views.py         trace cards and readable tables as HTML

Names are imported when they are first used: pandas and matplotlib load with the function that needs them.
"""

from __future__ import annotations

from cotkit.lazy import lazy

_PUBLIC = {
    "intervals": [
        "Auc", "PairedDifference", "Rate", "auc", "auc_interval", "bootstrap_interval", "mean_interval",
        "paired_difference", "pass_at_k", "wilson_interval",
    ],
    "candidates": ["candidates_frame"],
    "scored_sources": ["check_run_columns", "scored_frame"],
    "selfscores": ["self_consistency"],
    "distillation": [
        "acceptance_by_iteration", "accuracy_comparison", "by_type", "funnel", "judge_agreement",
    ],
    "cost": ["throughput"],
    "benchmark": ["BenchmarkReport"],
    "cycles": [
        "Comparison", "compare", "compare_held_out", "dev_measures", "family_gains", "gain_parts",
        "generation_measures", "room_to_learn", "set_diversity",
    ],
    "cycle_tables": [
        "cycle_findings", "cycles_frame", "family_findings", "training_frame", "trust_frame",
        "unwatched_frame",
    ],
    "alarms": ["Alarm"],
    "conclusions": ["examples", "findings", "outcome"],
    "diagnosis": ["JudgeDiagnosis", "judge_scores"],
    "panels": ["panel_scores", "panel_table", "panel_weights"],
    "positions": ["PositionBias"],
    "tuning": ["ThresholdReport", "check_tuning", "describe_scores", "tune_thresholds"],
    "chance": ["shuffled_verdicts"],
    "threshold_tables": ["threshold_grid"],
    "certificate": ["simulate_thresholds"],
    "paths": ["Path"],
    "strategies": ["StrategyComparison", "compared_texts", "strategy_funnel"],
    "kernels": ["given_kernel", "tfidf_kernel"],
    "mixes": ["Recommendation", "recommend"],
    "views": ["escaped", "readable", "trace_cards"],
}  # fmt: skip
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
_HOME |= {"alarms": "alarms:", "drafts": "drafts:", "figures": "figures:"}
__all__ = sorted(_HOME)
__getattr__, __dir__ = lazy(__name__, _HOME)
