"""cotkit: chain-of-thought data that can be trusted, from a notebook.

The public names below are imported when they are first used, so `import cotkit` costs next to nothing.
"""

from __future__ import annotations

from cotkit.lazy import lazy

__version__ = "0.1.0"

_PUBLIC = {
    "problems": ["Problem", "ProblemError", "load_problems", "problems_frame"],
    "chat": ["BudgetExceeded", "ChatModel", "Completion", "ModelError", "load_models", "local_model"],
    "verify": [
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
        "check_answers",
        "extract_answer",
        "run_programs",
        "run_python",
    ],
    "judge": [
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
    "runs": ["Run", "open_run"],
    "analysis": ["JudgeDiagnosis", "StrategyComparison", "ThresholdReport", "tune_thresholds"],
    "pipelines": [
        "Environment",
        "abenchmark",
        "acompare_strategies",
        "adistill",
        "asynthesize",
        "benchmark",
        "compare_strategies",
        "compare_traces",
        "diagnose_judge",
        "distill",
        "estimate_self_improvement",
        "self_improve",
        "start_distill",
        "start_synthesize",
        "synthesize",
        "synthesized_problems",
    ],
    "report": ["Report", "execute_notebook", "notebook_setup"],
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(["__version__", *_HOME])
__getattr__, __dir__ = lazy(__name__, _HOME)
