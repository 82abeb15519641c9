"""`SelfImprovingCoTPipeline`: CAMEL's class over `cotkit.distill`; a CAMEL user changes one import.

    from cotkit.compat import SelfImprovingCoTPipeline

Same constructor arguments and defaults, same methods, same output file. `reason_agent` and `evaluate_agent`
are ChatModels or any object with CAMEL's `reset()` and `step(prompt, response_format=None)`.

As in CAMEL, the judge's scores alone decide acceptance; a verdict is recorded and ranks traces. What differs:
- the final trace is the best one (verified, then score), not the last;
- every input is validated before the first call; an int id becomes its decimal string;
- an impossible argument (negative numbers, a misspelt dimension in `score_threshold`) is refused;
- a problem that fails is recorded with its reason (`self.run.drops`), a failing judge is not asked for ever;
- a reward model works without an `evaluate_agent`;
- results come in input order; undecided verdicts are exported as false;
- the reference is never shown to the judge, and to the generator only by `rationalization=True` (STaR's: for
  problems that were not solved, the trace flagged) or by the caller of `improve_trace(solution=...)`;
- an agent's calls are in no cache and no ledger (a ChatModel's are); `batch_size` and `max_workers` are kept,
  but the model's `max_concurrency` decides, and an agent is stepped by one thread at a time;
- a failing agent or judge is asked once (CAMEL: four times with waits), two equal problem texts are refused;
- with `output_path` a run folder `<output_path>.run` is kept beside the file: the same call resumes.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from cotkit import aio
from cotkit.chat import ChatModel, Completion, ModelError
from cotkit.judge import Judge, LLMJudge, RewardModelJudge, Thresholds
from cotkit.pipelines import distill
from cotkit.problems import Problem, problem_from_row
from cotkit.prompts import load
from cotkit.records import Judgement, Usage
from cotkit.runs import RunError

DIMENSIONS = ("correctness", "clarity", "completeness")


_locks: dict[int, tuple[Any, threading.Lock]] = {}


def _lock_of(agent: Any) -> threading.Lock:
    """One lock an agent, in whichever roles it serves (the agent is held, so that its id stays its own)."""
    return _locks.setdefault(id(agent), (agent, threading.Lock()))[1]


class AgentModel:
    """A CAMEL-style agent in a ChatModel's place: one call = reset(), then step(). One call at a time,
    since an agent carries its conversation.
    """

    max_concurrency = 1

    def __init__(self, agent: Any):
        self.agent, self._lock = agent, _lock_of(agent)
        self.name = self.model = type(agent).__name__

    def describe(self) -> dict[str, Any]:
        return {"agent": self.name}

    def step(self, prompt: str, response_format: Any = None) -> Any:
        with self._lock:
            self.agent.reset()
            options = {} if response_format is None else {"response_format": response_format}
            return self.agent.step(prompt, **options).msg

    async def acomplete(
        self, messages: Any, *, sample_index: int = 0, ledger: Any = None, role: str = "", **sampling: Any
    ) -> Completion:
        prompt = messages if isinstance(messages, str) else "\n\n".join(m["content"] for m in messages)
        kind, started = None, time.monotonic()
        try:
            message = await asyncio.to_thread(self.step, prompt)
            kind = None if message is not None and message.content else "empty"
        except Exception as error:  # whatever a user's agent raises is a failed call
            kind = "server"
            raise ModelError(kind, f"{type(error).__name__}: {error}") from error
        finally:
            if ledger is not None:  # tokens and cost unknown
                seconds = time.monotonic() - started
                ledger.record(role=role, endpoint="agent", model=self.name, kind=kind, seconds=seconds)
        if kind is not None:
            raise ModelError(kind, f"{self.name} returned no content")
        return Completion(
            text=message.content, model=self.name, endpoint="agent", sample_index=sample_index, usage=Usage()
        )

    async def acandidates(self, messages: Any, n: int, **options: Any) -> list[Completion | ModelError]:
        answers: list[Completion | ModelError] = []
        for index in range(n):
            try:
                answers.append(await self.acomplete(messages, sample_index=index, **options))
            except ModelError as error:
                answers.append(error)
        return answers


class AgentJudge(Judge):
    """A CAMEL-style evaluate_agent as a judge: scores 0..1 in `msg.parsed`, or JSON in `msg.content`."""

    def __init__(self, agent: Any):
        self.model = AgentModel(agent)
        super().__init__(self.model.name, DIMENSIONS)

    @property
    def models(self) -> list[Any]:
        return [self.model]

    def describe(self) -> dict[str, Any]:
        return {"judge": "agent", **self.model.describe()}

    async def ajudge(self, problem: Problem, trace: str, *, ledger: Any = None) -> Judgement:
        schema = _trace_evaluation()
        prompt = load("agent_judge").messages(problem=problem.problem, trace=trace)[0]["content"]
        try:
            message = await asyncio.to_thread(self.model.step, prompt, schema)
            parsed = getattr(message, "parsed", None)
            if parsed is None:
                parsed = schema.model_validate_json(message.content)
            values = schema.model_validate(parsed.model_dump() if hasattr(parsed, "model_dump") else parsed)
        except Exception as error:  # noqa: BLE001 - a judge that fails is recorded, never fatal
            return Judgement(scores=None, judge=self.name, error=f"{type(error).__name__}: {error}")
        scores = {name: getattr(values, name) for name in DIMENSIONS}
        return Judgement(scores=scores, feedback=values.feedback, judge=self.name)


def _trace_evaluation() -> Any:
    from pydantic import Field, create_model

    bounded = {name: (float, Field(ge=0, le=1)) for name in DIMENSIONS}
    return create_model("AgentTraceEvaluation", **bounded, feedback=(str, ""))


def from_agent(agent: Any) -> Any:
    """The agent as a model: a ChatModel as it is, anything with reset() and step() wrapped."""
    if isinstance(agent, ChatModel) or hasattr(agent, "acandidates"):
        return agent
    if hasattr(agent, "reset") and hasattr(agent, "step"):
        return AgentModel(agent)
    raise TypeError(
        f"reason_agent must be a ChatModel or have reset() and step(), got {type(agent).__name__}"
    )


class TraceIteration(BaseModel):
    iteration: int
    trace: str
    evaluation: dict[str, Any] | None = None


class ProblemResult(BaseModel):
    """What `process_problem` returns, with CAMEL's fields; `model_dump()` is an entry of the output file."""

    id: str
    type: str
    problem: str
    solution: str
    final_trace: str
    agent_evaluate_success: bool | None
    boxed_answer_success: bool
    improvement_history: list[TraceIteration]


class SelfImprovingCoTPipeline:
    """CAMEL's pipeline class; see the module's docstring for what differs."""

    def __init__(
        self,
        reason_agent: Any,
        problems: list[dict[str, Any]],
        max_iterations: int = 3,
        score_threshold: float | dict[str, float] = 0.7,
        rejection_sampling_n: int | None = None,
        evaluate_agent: Any = None,
        reward_model: Any = None,
        output_path: str | None = None,
        few_shot_examples: str | None = None,
        batch_size: int | None = None,
        max_workers: int | None = None,
        solution_pattern: str = r"\\boxed{(.*?)}",
        trace_pattern: str | None = None,
    ):
        self.reason_agent, self.problems = reason_agent, problems
        self.max_iterations, self.score_threshold = max_iterations, score_threshold
        self.rejection_sampling_n, self.few_shot_examples = rejection_sampling_n, few_shot_examples
        self.evaluate_agent, self.reward_model = evaluate_agent, reward_model
        self.output_path, self.batch_size, self.max_workers = output_path, batch_size, max_workers
        self.solution_pattern = solution_pattern
        self.trace_pattern = trace_pattern or solution_pattern
        self._model = from_agent(reason_agent)
        self._judge = self._make_judge()
        self._check()
        self.run = None
        self.reasoning_traces: list[dict[str, Any]] = []

    def _check(self) -> None:
        """What cannot work is refused here, before any call."""
        for name in ("batch_size", "max_workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}")
        if self.max_iterations < 0 or (self.rejection_sampling_n or 0) < 0:
            raise ValueError("max_iterations and rejection_sampling_n cannot be negative")
        if self._judge is not None:
            Thresholds.for_judge(self.score_threshold, self._judge)

    def _make_judge(self) -> Any:
        if self.reward_model is not None:
            return RewardModelJudge(self.reward_model)
        if self.evaluate_agent is None:
            return None
        model = from_agent(self.evaluate_agent)
        return AgentJudge(self.evaluate_agent) if isinstance(model, AgentModel) else LLMJudge(model)

    def validate_problem_format(self, problem: Any) -> None:
        """Raises ValueError, with the field and the fix, for a dict that is no CAMEL problem."""
        problem_from_row(problem, "problem")

    def generate(self, rationalization: bool = False) -> list[dict[str, Any]]:
        """Run every problem; the list CAMEL returns, one dict a problem that has a trace, in input order."""
        folder = f"{self.output_path}.run" if self.output_path else None
        self.reasoning_traces = self._distill(self.problems, rationalization, folder)
        return self.reasoning_traces

    def process_problem(self, problem: dict[str, Any], rationalization: bool = False) -> ProblemResult:
        """One problem. Raises RuntimeError with the reason when it gives no trace."""
        results = self._distill([problem], rationalization, None, export=False)
        if not results:
            reasons = [f"{row.drop_reason}: {row.detail}" for row in self.run.records()]
            raise RuntimeError(f"no trace: {'; '.join(reasons)}")
        return ProblemResult.model_validate(results[0])

    def generate_reasoning_trace(self, problem: str) -> str:
        messages = load("reasoning").messages(problem=problem, few_shot=self.few_shot_examples)
        return aio.run(self._model.acomplete(messages)).trace

    def evaluate_trace(self, problem: str, trace: str, solution: str | None = None) -> dict[str, Any]:
        """Scores and feedback as one dict; raises RuntimeError when there is no judge or it fails."""
        if self._judge is None:
            raise RuntimeError("give evaluate_agent= or reward_model= to evaluate traces")
        asked = Problem(id="0", problem=problem, reference=solution)
        judgement = aio.run(self._judge.ajudge(asked, trace))
        if judgement.scores is None:
            raise RuntimeError(f"the judge failed: {judgement.error}")
        return {**judgement.scores, "feedback": judgement.feedback}

    def improve_trace(self, problem: str, trace: str, feedback: str, solution: str | None = None) -> str:
        if solution:
            feedback = f"{feedback}\n\nThe answer is {solution}; do not mention that you were told."
        messages = load("refine").messages(
            problem=problem, trace=trace, feedback=feedback, few_shot=self.few_shot_examples
        )
        return aio.run(self._model.acomplete(messages)).trace

    def _distill(
        self, problems: Sequence[Any], rationalization: bool, folder: str | None, export: bool = True
    ) -> list[dict[str, Any]]:
        parsed = [problem_from_row(row, f"problem {i}", default_id=str(i)) for i, row in enumerate(problems)]
        self._scratch = tempfile.TemporaryDirectory()  # lives as long as this pipeline or its next run
        options = {
            "max_iterations": self.max_iterations,
            "score_threshold": self.score_threshold,
            "rejection_sampling_n": self.rejection_sampling_n or None,
            "few_shot_examples": self.few_shot_examples,
            "rationalization": rationalization,
            "solution_pattern": self.solution_pattern,
            "trace_pattern": self.trace_pattern,
            "require_verdict": False,
            "unchecked": "keep",
            "run": pathlib.Path(folder or self._scratch.name),
            "show": "auto" if export else "none",
        }
        try:
            run = distill(parsed, self._model, self._judge, **options)
        except RunError:  # another configuration than last time: as in CAMEL, the new run takes its place
            run = distill(parsed, self._model, self._judge, resume="never", **options)
        self.run = run
        target = pathlib.Path(self._scratch.name, "traces.json")
        if export and self.output_path:
            target = pathlib.Path(self.output_path)
        run.export(target, format="camel", card=False)
        return json.loads(target.read_text(encoding="utf-8"))["traces"]
