"""CAMEL's class as a drop-in: the behaviours its users rely on, and the listed differences."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest

from cotkit.compat import SelfImprovingCoTPipeline

TRACE = "Mock reasoning trace"
PROBLEM = {"id": "problem_0", "type": "arithmetic", "problem": "What is 1 + 2?", "solution": "3"}


class Agent:
    """reset() and step(), as CAMEL's ChatAgent; `reply` is a text, a list, or a function of the prompt."""

    def __init__(self, reply=TRACE):
        self.reply, self.resets, self.prompts = reply, 0, []
        self._busy = threading.Lock()

    def reset(self):
        self.resets += 1

    def step(self, prompt, response_format=None):
        assert self._busy.acquire(blocking=False), "stepped by two threads at once"
        try:
            self.prompts.append(prompt)
            reply = self.reply
            if callable(reply):
                reply = reply(prompt)
            elif isinstance(reply, list):
                reply = reply[min(len(self.prompts), len(reply)) - 1]
            if isinstance(reply, dict):
                return SimpleNamespace(
                    msg=SimpleNamespace(content=json.dumps(reply), parsed=response_format(**reply))
                )
            return SimpleNamespace(msg=SimpleNamespace(content=reply, parsed=None))
        finally:
            self._busy.release()


def scored(correctness, clarity, completeness, feedback="fine"):
    return {
        "correctness": correctness,
        "clarity": clarity,
        "completeness": completeness,
        "feedback": feedback,
    }


GOOD = scored(0.95, 0.9, 0.95)


def pipeline(agent=None, problems=(PROBLEM,), **options):
    return SelfImprovingCoTPipeline(agent or Agent(), list(problems), **options)


def test_defaults_and_arguments_are_kept_as_given():
    made = pipeline(few_shot_examples="Q: 1+1? A: 2")
    assert (made.max_iterations, made.score_threshold, made.reward_model) == (3, 0.7, None)
    assert made.evaluate_agent is None and made.few_shot_examples == "Q: 1+1? A: 2"
    made = pipeline(batch_size=10, max_workers=4)
    assert (made.batch_size, made.max_workers) == (10, 4)


def test_generating_a_trace_is_one_reset_and_one_step():
    agent = Agent()
    assert pipeline(agent).generate_reasoning_trace("What is 1 + 2?") == TRACE
    assert agent.resets == len(agent.prompts) == 1


def test_a_judgement_comes_back_as_a_flat_dict():
    made = pipeline(evaluate_agent=Agent(scored(0.8, 0.9, 0.85, "Good")))
    assert made.evaluate_trace("p", "t") == scored(0.8, 0.9, 0.85, "Good")


class Reward:
    def __init__(self, value):
        self.value, self.calls = value, 0

    def evaluate(self, messages):
        self.calls += 1
        return self.value


def test_one_reward_number_is_the_overall_score():
    result = pipeline(reward_model=Reward(0.85)).evaluate_trace("p", "t")
    assert result["overall"] == 0.85 and isinstance(result["feedback"], str)


def test_several_rewards_keep_their_names():
    rewards = {"correctness": 0.8, "coherence": 0.9, "helpfulness": 0.85}
    result = pipeline(reward_model=Reward(rewards)).evaluate_trace("p", "t")
    assert {name: result[name] for name in rewards} == rewards and "feedback" in result


def test_improving_a_trace_is_one_reset_and_one_step():
    agent = Agent("Improved")
    assert pipeline(agent).improve_trace("p", "t", "be clearer") == "Improved"
    assert agent.resets == len(agent.prompts) == 1 and "be clearer" in agent.prompts[0]


def test_a_first_trace_that_meets_the_threshold_is_final():
    result = pipeline(evaluate_agent=Agent(GOOD)).process_problem(PROBLEM)
    assert result.final_trace == TRACE and len(result.improvement_history) == 1
    assert result.problem == PROBLEM["problem"] and result.agent_evaluate_success is True


@pytest.mark.parametrize(
    ("judged", "passes"), [(scored(0.9, 0.8, 0.6), True), (scored(0.7, 0.6, 0.9), False)]
)
def test_a_threshold_by_dimension(judged, passes):
    made = pipeline(
        evaluate_agent=Agent(judged),
        score_threshold={"correctness": 0.8, "clarity": 0.7},
        max_iterations=0,
    )
    assert made.process_problem(PROBLEM).agent_evaluate_success is passes


def test_the_output_file_is_camels(tmp_path):
    path = tmp_path / "out.json"
    made = pipeline(
        Agent([TRACE, "Improved reasoning trace"]),
        evaluate_agent=Agent([GOOD, scored(0.98, 0.95, 0.98, "better")]),
        max_iterations=1,
        score_threshold=0.99,
        output_path=str(path),
    )
    results = made.generate()
    expected = {
        "id": "problem_0",
        "type": "arithmetic",
        "problem": "What is 1 + 2?",
        "solution": "3",
        "final_trace": "Improved reasoning trace",
        "agent_evaluate_success": False,
        "boxed_answer_success": False,
        "improvement_history": [
            {"iteration": 0, "trace": TRACE, "evaluation": GOOD},
            {
                "iteration": 1,
                "trace": "Improved reasoning trace",
                "evaluation": scored(0.98, 0.95, 0.98, "better"),
            },
        ],
    }
    assert json.loads(path.read_text(encoding="utf-8")) == {"traces": [expected]}
    assert results == made.reasoning_traces == [expected]


BAD = {
    "no problem": ({"solution": "3"}, "problem"),
    "problem not a string": ({"problem": 3, "solution": "3"}, "problem"),
    "id a list": ({"problem": "p", "id": [1]}, "id"),
    "type an int": ({"problem": "p", "type": 3}, "type"),
    "solution an int": ({"problem": "p", "solution": 3}, "solution"),
}


@pytest.mark.parametrize(("row", "field"), BAD.values(), ids=BAD.keys())
def test_invalid_problems_are_refused_with_readable_words(row, field):
    agent = Agent()
    with pytest.raises(ValueError, match=field):
        pipeline(agent).validate_problem_format(row)
    with pytest.raises(ValueError, match=field):
        pipeline(agent, [PROBLEM, row]).generate()
    assert not agent.prompts  # nothing was asked for the valid one either


def test_each_trace_belongs_to_its_own_problem_and_comes_in_order():
    rows = [{"id": n, "problem": f"PID={n}; what?", "solution": str(n)} for n in range(3)]
    agent = Agent(lambda prompt: "trace of " + prompt.split("PID=")[1].split(";")[0])
    results = pipeline(agent, rows, batch_size=2, max_workers=2).generate()
    assert [(r["id"], r["final_trace"]) for r in results] == [(str(n), f"trace of {n}") for n in range(3)]


def test_without_a_judge_the_trace_is_returned_unjudged():
    result = pipeline(Agent("So \\boxed{3}"), [{**PROBLEM, "solution": "\\boxed{3}"}]).generate()[0]
    assert result["agent_evaluate_success"] is None and result["boxed_answer_success"] is True


@pytest.mark.parametrize(
    ("solution", "trace", "same"),
    [
        ("\\boxed{\\frac{1}{2}}", "\\boxed{\\frac{1}{3}}", False),
        ("\\boxed{7}", "Try \\boxed{7}? no. Final \\boxed{9}", False),
        ("\\boxed{7}", "First \\boxed{3} ... so \\boxed{7}", True),
        ("\\boxed{}", "\\boxed{}", False),
        ("\\boxed{0.5}", "\\boxed{\\frac12}", True),
    ],
)
def test_boxed_answers_are_compared_by_value(solution, trace, same):
    result = pipeline(Agent(trace), [{**PROBLEM, "solution": solution}], max_iterations=0).generate()[0]
    assert result["boxed_answer_success"] is same


def broken(prompt):
    raise ConnectionError("down")


def test_a_failing_judge_ends_and_the_trace_is_recorded():
    judge = Agent(broken)
    result = pipeline(evaluate_agent=judge).generate()[0]
    assert result["final_trace"] == TRACE and not result["agent_evaluate_success"]
    assert len(judge.prompts) <= 8


def test_a_failing_agent_is_recorded_and_the_others_go_on(tmp_path):
    agent = Agent(lambda prompt: broken(prompt) if "PID=1;" in prompt else "trace")
    rows = [{"id": f"p{n}", "problem": f"PID={n}; what?", "solution": "1"} for n in range(3)]
    made = pipeline(agent, rows, output_path=str(tmp_path / "out.json"))
    assert [r["id"] for r in made.generate()] == ["p0", "p2"]
    assert made.run.drops.id.tolist()[0] == "p1" and "down" in made.run.drops.detail.tolist()[0]


def test_a_reward_model_works_without_an_evaluate_agent():
    reward = Reward(0.9)
    result = pipeline(reward_model=reward).generate()[0]
    assert result["agent_evaluate_success"] is True and reward.calls == 1


def test_a_misspelt_dimension_is_refused():
    with pytest.raises(ValueError, match="correctness"):
        pipeline(evaluate_agent=Agent(GOOD), score_threshold={"corectness": 0.9})


@pytest.mark.parametrize("name", ["max_iterations", "rejection_sampling_n", "batch_size", "max_workers"])
def test_impossible_numbers_are_refused(name):
    with pytest.raises(ValueError, match=name):
        pipeline(**{name: -1})


def test_problems_without_ids_are_told_apart():
    rows = [{"problem": f"PID={n}; what?", "solution": "1"} for n in range(3)]
    assert [r["id"] for r in pipeline(Agent("trace"), rows).generate()] == ["0", "1", "2"]


def test_one_agent_in_two_roles_is_stepped_by_one_thread_at_a_time():
    agent = Agent(lambda prompt: GOOD if "Judge the reasoning" in prompt else TRACE)
    rows = [{"id": f"p{n}", "problem": f"PID={n}; what?", "solution": "1"} for n in range(8)]
    made = pipeline(agent, rows, evaluate_agent=agent)
    assert len(made.generate()) == 8  # Agent.step asserts that nobody else is inside
    assert made.run.report["ledger"]["by_role"]["generator"]["calls"] == 8
    assert made.run.report["ledger"]["cost_usd"] is None


def test_another_threshold_on_the_same_output_takes_its_place(tmp_path):
    path = str(tmp_path / "out.json")
    agent = Agent()
    pipeline(agent, evaluate_agent=Agent(GOOD), output_path=path).generate()
    strict = pipeline(
        agent, evaluate_agent=Agent(GOOD), output_path=path, score_threshold=0.99, max_iterations=0
    )
    assert strict.generate()[0]["agent_evaluate_success"] is False


def test_a_second_run_on_the_same_output_asks_nothing_and_destroys_nothing(tmp_path):
    path = tmp_path / "out.json"
    pipeline(evaluate_agent=Agent(GOOD), output_path=str(path)).generate()
    before = path.read_bytes()
    agent = Agent()
    pipeline(agent, evaluate_agent=Agent(GOOD), output_path=str(path)).generate()
    assert path.read_bytes() == before and not agent.prompts


def test_chat_models_serve_in_an_agents_place(serve):
    from cotkit import ChatModel

    server = serve(lambda request: "So \\boxed{3}")
    model = ChatModel("mock", base_url=server.base_url)
    assert pipeline(model).generate()[0]["final_trace"] == "So \\boxed{3}"
