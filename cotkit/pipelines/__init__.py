"""The pipelines: each one file that reads top to bottom."""

from cotkit.pipelines.benchmark import abenchmark, benchmark
from cotkit.pipelines.compare import acompare_strategies, compare_strategies
from cotkit.pipelines.cycles import Trainer
from cotkit.pipelines.diagnose import compare_traces, diagnose_judge
from cotkit.pipelines.distill import adistill, distill, start_distill
from cotkit.pipelines.environment import Environment, Step
from cotkit.pipelines.merging import merge_runs
from cotkit.pipelines.pairing import Filters
from cotkit.pipelines.progress import status_line
from cotkit.pipelines.rlmf_config import load_self_improvement
from cotkit.pipelines.running import RunJob
from cotkit.pipelines.self_improve import estimate_self_improvement, self_improve
from cotkit.pipelines.synthesize import asynthesize, start_synthesize, synthesize, synthesized_problems
from cotkit.runs import SelfImprovement

__all__ = [
    "Environment",
    "Filters",
    "RunJob",
    "SelfImprovement",
    "Step",
    "Trainer",
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
    "load_self_improvement",
    "merge_runs",
    "self_improve",
    "start_distill",
    "start_synthesize",
    "status_line",
    "synthesize",
    "synthesized_problems",
]
