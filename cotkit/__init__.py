"""cotkit: chain-of-thought data that can be trusted, from a notebook.

The public names below are imported when they are first used, so `import cotkit` costs next to nothing.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_PUBLIC = {
    "cotkit.problems": ["Problem", "ProblemError", "load_problems", "problems_frame"],
    "cotkit.chat": ["BudgetExceeded", "ChatModel", "Completion", "ModelError", "load_models", "local_model"],
    "cotkit.verify": [
        "AnswerPolicy",
        "AnswerVerifier",
        "CheckVerifier",
        "ProgramResult",
        "SandboxTooWeak",
        "TestsVerifier",
        "Verdict",
        "acheck_answer",
        "arun_python",
        "check_answer",
        "extract_answer",
        "run_programs",
        "run_python",
    ],
    "cotkit.judge": [
        "ConfidenceJudge",
        "Dimension",
        "JudgePanel",
        "Judgement",
        "LLMJudge",
        "ModelVerifier",
        "RewardModelJudge",
        "StepJudge",
        "Thresholds",
    ],
    "cotkit.runs": ["Run", "open_run"],
    "cotkit.analysis": ["JudgeDiagnosis", "StrategyComparison", "ThresholdReport", "tune_thresholds"],
    "cotkit.pipelines": [
        "Environment",
        "abenchmark",
        "acompare_strategies",
        "adistill",
        "aself_improve",
        "asynthesize",
        "benchmark",
        "compare_strategies",
        "diagnose_judge",
        "distill",
        "estimate_self_improvement",
        "self_improve",
        "start_distill",
        "start_synthesize",
        "synthesize",
        "synthesized_problems",
    ],
    "cotkit.report": ["Report", "execute_notebook", "notebook_setup"],
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(["__version__", *_HOME])


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'cotkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
