"""The YAML that articles show is taken as it is; what cannot work is refused by file, section and fix."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os

import pytest
from scripted_loop import problems

from cotkit.pipelines import load_self_improvement, rlmf_config, self_improve
from cotkit.pipelines.rlmf_config import OPTIONS

pytestmark = pytest.mark.filterwarnings("ignore:evaluation_dimensions")
ARTICLE = """
model_config:
  actor: {provider: openai, model_name: gpt-4o-mini, api_key: "${MY_ACTOR_KEY}", temperature: 0.7}
  critic: {provider: deepseek, model_name: deepseek-chat, api_key: MY_CRITIC_KEY}
  improver:
    - {provider: openai, model_name: gpt-4o, api_key: $MY_ACTOR_KEY}
    - {provider: ollama, model_name: llama3}
self_improvement_config:
  task_description: Answer questions about cooking.
  evaluation_criteria: ["Is it safe?", "Is it short?"]
  num_iterations: 3
  num_cycles: 2
  evaluation_dimensions:
    - name: helpfulness
      description: "Does it answer the question?"
      scoring_guide: {1: no, "4-6": partly, 10: fully}
    - {name: tone, description: "Is it friendly?", scoring_guide: "9-10 warm, 1-3 cold", weight: 2}
training_config: {method: DPO, base_model: smollm2-135m, epochs: 1, batch_size: 4, learning_rate: 1.0e-5}
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_ACTOR_KEY", "key-of-the-actor-1")
    monkeypatch.setenv("MY_CRITIC_KEY", "key-of-the-critic-1")

    def write(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


def test_the_articles_shape_is_taken_as_it_is(config):
    with pytest.warns(UserWarning, match="weights are not used"):
        loaded = load_self_improvement(config(ARTICLE))
    options = loaded["options"]
    assert loaded["training"] == {
        "base_model": "smollm2-135m", "epochs": 1, "batch_size": 4, "learning_rate": 1e-5,
    }  # fmt: skip
    assert (options["iterations"], options["cycles"], options["method"]) == (3, 2, "dpo")
    assert options["actor"].model == "gpt-4o-mini" and options["critics"][0].model == "deepseek-chat"
    assert [e.options.model for e in options["improver"].endpoints] == ["gpt-4o", "llama3"]
    assert options["critics"][0].endpoints[0].options.base_url == "https://api.deepseek.com/v1"
    first, second = options["task"]["dimensions"]
    assert first["scale"] == (1, 10) and first["anchors"][6] == "partly" and "Is it safe?" in first["guide"]
    assert "9-10 warm" in second["guide"] and second["anchors"] == {}


def test_it_runs_and_cycles_and_iterations_may_be_overridden(config, world):
    text = ARTICLE.replace(
        "num_iterations: 3", "prompts: [PID=1; a, PID=2; bb, PID=3; ccc]\n  num_iterations: 0"
    )
    text = text.replace("provider: openai", f'provider: own, base_url: "{world.server.base_url}"')
    text = text.replace("provider: deepseek", f'provider: own, base_url: "{world.server.base_url}"')
    text = text.replace("gpt-4o-mini", "actor-40").replace("deepseek-chat", "judge-9")
    options = load_self_improvement(config(text))["options"] | {"cycles": 1, "dev": 0, "test": 0}
    run = self_improve(**options, num_generations=2, run=str(world.folder / "r"), show="none")
    assert len(run.cycles) == 1 and run.cycles[0]["counts"]["attempts"] == 6
    assert {r.body.get("temperature") for r in world.server.log if r.body["model"] == "actor-40"} == {0.7}
    assert "key-of-the" not in (run.path / "report.json").read_text() + (run.path / "config.json").read_text()


def test_dimensions_may_be_named_by_their_keys(config):
    text = "model_config: {actor: {provider: vllm, model_name: m}}\nself_improvement_config:\n"
    text += (
        "  task_description: T\n  evaluation_dimensions: {clarity: {description: D, scoring_guide: {1: x}}}"
    )
    (found,) = load_self_improvement(config(text))["options"]["task"]["dimensions"]
    assert (found["name"], found["guide"], found["anchors"]) == ("clarity", "D", {1: "x"})


def test_ppo_in_the_file_is_refused_with_what_to_take_instead(config):
    text = ARTICLE.replace("method: DPO", "method: ppo").replace("num_iter", "prompts: [a, b, c]\n  num_iter")
    with pytest.raises(ValueError, match=r"no PPO any more.*grpo"):
        self_improve(**load_self_improvement(config(text))["options"], dev=0, test=0)


def test_without_prompts_the_description_is_the_prompt(config):
    options = load_self_improvement(config(ARTICLE))["options"]
    assert "prompts" not in options["task"]


def test_criteria_alone_are_dimensions(config):
    text = "model_config: {actor: {provider: vllm, model_name: m}}\nself_improvement_config:\n"
    text += '  {task_description: T, evaluation_criteria: ["Is it safe for children?"]}\n'
    assert load_self_improvement(config(text))["options"]["task"]["dimensions"] == [
        {"name": "is_it_safe_for", "guide": "Is it safe for children?"}
    ]


GUIDES = [  # scoring_guide: anchors, what the guide says of it
    ('{1: bad, "7-8": fine, 10: best}', {1: "bad", 8: "fine", 10: "best"}, ""),
    ('{"9-10 (excellent)": E, "1 to 3": P}', {10: "E", 3: "P"}, ""),
    ("{excellent: every step holds, poor: none does}", {}, "excellent: every step holds\npoor: none does"),
    ('{"7.5": fine, 10: best}', {}, "7.5: fine\n10: best"),
    ('["10 = best", "1 = worst"]', {}, "10 = best\n1 = worst"),
    ("from 1 to 10", {}, "from 1 to 10"),
]


@pytest.mark.parametrize(("guide", "anchors", "words"), GUIDES, ids=[g[0] for g in GUIDES])
def test_a_scoring_guide_of_numbers_gives_anchors_and_one_of_words_is_read_as_words(
    config, guide, anchors, words
):
    text = "model_config: {actor: {provider: vllm, model_name: m}}\nself_improvement_config:\n"
    text += "  task_description: T\n  evaluation_dimensions:\n    - name: clarity\n"
    text += f"      description: D\n      scoring_guide: {guide}\n"
    (found,) = load_self_improvement(config(text))["options"]["task"]["dimensions"]
    assert found == {"name": "clarity", "guide": f"D\n{words}".strip(), "scale": (1, 10), "anchors": anchors}


def test_a_method_a_cycle_and_other_options_stand_in_the_file(config, tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"id": "a", "problem": "1 + 1?", "reference": "2"}\n')
    text = "model_config: {actor: {provider: vllm, model_name: m}}\n"
    text += "self_improvement_config: {problems: mine.jsonl, dev: 0.3, budget_calls: 50, policy: [best]}\n"
    text += "training_config: {method: [SFT, dpo], max_length: 512}"
    loaded = load_self_improvement(config(text))
    options = loaded["options"]
    assert options["method"] == ["sft", "dpo"] and loaded["training"] == {"max_length": 512}
    assert (options["dev"], options["budget_calls"], options["policy"]) == (0.3, 50, ["best"])
    assert options["task"]["problems"] == tmp_path / "mine.jsonl"  # beside the file, wherever it is read from
    assert OPTIONS and set(OPTIONS) <= set(inspect.signature(self_improve).parameters)


def test_one_prompt_may_be_a_text_and_one_critic_an_entry(config):
    text = ARTICLE.replace("critic:", "critics:").replace("num_iter", "prompts: Explain rain.\n  num_iter")
    options = load_self_improvement(config(text))["options"]
    assert options["task"]["prompts"] == ["Explain rain."] and len(options["critics"]) == 1


def test_a_key_in_the_file_works_with_a_warning_that_does_not_repeat_it(config, monkeypatch):
    key = "sk-1234567890abcdef1234"
    text = ARTICLE.replace("${MY_ACTOR_KEY}", key)
    with pytest.warns(UserWarning, match="environment variable") as warned:
        options = load_self_improvement(config(text))["options"]
    monkeypatch.delenv("COTKIT_ACTOR_0_API_KEY")
    assert key not in str([w.message for w in warned]) and key not in repr(options["actor"].describe())
    assert key not in os.environ.values()


def test_each_critic_keeps_its_own_key(config, monkeypatch):
    keys = ["sk-aaaaaaaaaaaaaaaa1111", "sk-bbbbbbbbbbbbbbbb2222"]
    text = "self_improvement_config: {task_description: T}\nmodel_config:\n"
    text += "  actor: {provider: vllm, model_name: m}\n  critics:\n"
    text += "".join(f"    - {{provider: openai, model_name: c, api_key: {key}}}\n" for key in keys)
    with pytest.warns(UserWarning, match="critics 2: a key stands in the file"):
        critics = load_self_improvement(config(text))["options"]["critics"]
    variables = [critic.endpoints[0].options.api_key_env for critic in critics]
    assert [os.environ[name] for name in variables] == keys
    for name in variables:
        monkeypatch.delenv(name)


NUMBERS = """
model_config:
  actor: {provider: embedded, model_name: smollm2-135m, temperature: 7e-1, max_tokens: "1e2", seed: "4"}
self_improvement_config:
  task_description: Solve the problem.
  num_generations: "4"
  score_threshold: {correctness: 5e-1}
  problems_per_cycle: ["12", 8]
  budget_calls: 1e5
  run: "7"
training_config:
  {method: dpo, base_model: smollm2-135m, epochs: "2", batch_size: 4, learning_rate: 5e-5, lora: {r: "4"}}
"""


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs the extra train")
def test_numbers_that_yaml_reads_as_texts_reach_the_models_and_the_training(config, world, monkeypatch):
    from cotkit.train import EmbeddedTrainer, running

    @functools.wraps(running.train)  # its options are checked
    def train(method, data, base, output, **options):
        asked.append((method, base, options))
        raise RuntimeError("nothing is trained here")

    asked, fits = [], {"rows": 99, "drops": {}}
    monkeypatch.setattr(running, "train", train)
    monkeypatch.setattr(EmbeddedTrainer, "fitting", lambda *given: fits)
    monkeypatch.setattr(rlmf_config, "local_model", lambda name, **own: world.model("actor-40", **own))
    loaded = load_self_improvement(config(NUMBERS))
    options, training = loaded["options"], loaded["training"]
    assert (options["num_generations"], options["problems_per_cycle"]) == (4, [12, 8])
    assert options["score_threshold"] == {"correctness": 0.5} and options["run"] == "7"
    options |= {"task": problems(), "score_threshold": None, "iterations": 0, "dev": 20, "test": 8}
    trainer = EmbeddedTrainer(training.pop("base_model"), training)
    run = self_improve(**options | {"run": str(world.folder / "r"), "show": "none"}, trainer=trainer)
    assert "nothing is trained here" in run.report["stopped"]
    wanted = {"epochs": 2, "batch_size": 4, "learning_rate": 5e-5, "lora": {"r": 4}}
    assert asked == [("dpo", "smollm2-135m", wanted)]
    sent = {(r.body["temperature"], r.body.get("max_tokens")) for r in world.server.log}
    assert sent == {(0.7, 100)}


WRONG = [
    ("a: 1", "self_improvement_config"),
    ("self_improvement_config: {task_description: T}", "role `actor`"),
    (ARTICLE.replace("num_cycles", "num_cicles"), "num_cicles"),
    (ARTICLE.replace("critic:", "critik:"), "critik"),
    (ARTICLE.replace("provider: openai", "provider: opnai"), "opnai"),
    (ARTICLE.replace("scoring_guide: {1", "scoring_gide: {1"), "scoring_gide"),
    (ARTICLE.replace("model_name: deepseek-chat, ", ""), "critic.*model_name"),
    (ARTICLE.replace("MY_CRITIC_KEY", "NO_SUCH_KEY"), "NO_SUCH_KEY"),
    (ARTICLE.replace("- name: helpfulness", "- nam: helpfulness"), "nam"),
    (ARTICLE.replace("weight: 2", "scale: 10"), r"tone: scale must be \[low, high\]"),
    (ARTICLE.replace("critic: {provider", "critic: deepseek-chat #"), "critic: it must be {provider"),
    (ARTICLE.replace("critic: {provider", "critic: [] #"), "critic: it must be {provider"),
    ("a: [", "not valid YAML"),
    (ARTICLE.replace("1.0e-5", "fast"), "training_config: learning_rate must be a number, got 'fast'"),
    (ARTICLE.replace("num_cycles: 2", "num_cycles: two"), "config: num_cycles must be a number, got 'two'"),
    (ARTICLE.replace("temperature: 0.7", "temperature: hot"), "actor: temperature must be a number"),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[w[1] for w in WRONG])
def test_what_cannot_work_is_refused_with_file_and_place(config, text, words):
    with pytest.raises(ValueError, match=f"config.yaml.*{words}"):
        load_self_improvement(config(text))
