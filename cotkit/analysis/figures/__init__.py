"""One figure for each frame of the analysis: `figures.funnel(analysis.funnel(rows, counts))`.

canvas.py holds what they share; the other modules draw, one a notebook. Names are imported when first used.
"""

from __future__ import annotations

from cotkit.lazy import lazy

_PUBLIC = {
    "benchmark": ["accuracy_map", "model_differences", "outcomes", "passk", "solved_cost"],
    "canvas": ["style"],
    "course": ["course_of_run", "inline"],
    "cycles": ["dev_results", "family_accuracy", "final_accuracy", "score_cycles"],
    "diagnosis": ["judge_probes"],
    "distillation": ["acceptance", "accuracy", "calls", "funnel", "lengths", "scores"],
    "strategies": ["look_of", "question_map", "solve_rates", "strategy_funnel", "triangle"],
    "thresholds": [
        "cost_curve",
        "kappa_matrix",
        "precision_by_iteration",
        "precision_recall",
        "reliability",
        "roc",
        "rules_front",
        "score_by_length",
        "threshold_curve",
        "threshold_heat",
        "verdict_histograms",
    ],
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_HOME)
__getattr__, __dir__ = lazy(__name__, _HOME)
