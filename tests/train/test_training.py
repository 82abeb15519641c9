"""Trainings of a tiny model: every method, going on after a kill, what ends one, what the manifest says."""

from __future__ import annotations

import errno
import json
import math
import os
import pathlib
import shutil
import signal
import sys

import pytest
from forked import Forked
from tiny import KTO, PAIRS, PROBLEMS, SFT, answer, needs_training, said

from cotkit.records import Candidate, Row, Verdict
from cotkit.runs import export_rows
from cotkit.train import LoraOptions, TrainingDataError, merge, open_training, train

pytestmark = [needs_training, pytest.mark.usefixtures("one_thread")]
QUICK = {"max_steps": 2, "batch_size": 2, "say": None}
LN2 = math.log(2)  # the dpo loss of a model that is its own reference


@pytest.fixture(scope="module")
def taught(base, tmp_path_factory):
    """An adapter far from its base."""
    options = {"max_steps": 8, "batch_size": 6, "learning_rate": 0.05, "say": None}
    return train("sft", SFT, base, tmp_path_factory.mktemp("taught") / "sft", **options)


def log_of(result) -> list[dict]:
    return [json.loads(line) for line in (result.output / "log.jsonl").read_text().splitlines()]


# Every method


@pytest.mark.parametrize(("method", "rows"), [("sft", SFT), ("dpo", PAIRS), ("dpo_sft", PAIRS), ("kto", KTO)])
def test_every_method_trains_an_adapter_and_writes_down_how(base, tmp_path, method, rows):
    result = train(method, rows, base, tmp_path / "out", **QUICK)
    assert result.trained and result.steps == 2 and (result.adapter / "adapter_model.safetensors").is_file()
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["trained"] and manifest["versions"]["trl"] and manifest["sha256"]
    assert manifest["reference"] == (None if method == "sft" else str(base))
    assert (result.rows, sum(result.drops.values())) == (len(rows), 0)
    losses = [entry["loss"] for entry in log_of(result) if "loss" in entry]
    assert losses == [result.loss_first, result.loss_last] and all(map(math.isfinite, losses))
    assert open_training(tmp_path / "out") == result and method in result._repr_markdown_()
    assert not (tmp_path / "out/checkpoints").exists()


def test_grpo_takes_a_reward_that_may_be_undecided(base, tmp_path):
    seen = []

    def reward(prompts, completions, reference, **columns):
        seen.extend(zip([p[-1]["content"] for p in prompts], reference, strict=True))
        return [None if i % 3 == 0 else float(len(c[0]["content"])) for i, c in enumerate(completions)]

    rows = [{"prompt": p, "reference": str(i)} for i, p in enumerate(PROBLEMS)]
    options = {"reward": reward, "batch_size": 4, "num_generations": 4, "max_completion_length": 6}
    result = train("grpo", rows, base, tmp_path / "out", **{**QUICK, **options})
    assert result.trained and result.reference is None
    assert len(seen) == 8 and set(seen) <= {(row["prompt"], row["reference"]) for row in rows}


def test_grpo_is_rewarded_by_the_environments_verifier(base, tmp_path):
    from cotkit import Environment, load_problems

    asked = [{"id": p, "problem": p, "solution": answer(p)} for p in PROBLEMS]
    verified, given = Environment(load_problems(asked)).as_trl_reward(), []

    def reward(**columns):
        given.extend(verified(**columns))
        return given[-len(columns["completions"]) :]

    rows = [{"prompt": p, "id": p} for p in PROBLEMS]
    options = {"reward": reward, "batch_size": 4, "num_generations": 4, "max_completion_length": 6}
    assert train("grpo", rows, base, tmp_path / "out", **{**QUICK, **options}).trained
    assert given == [0.0] * 8  # a model that was never trained answers nothing: wrong, not undecided


def test_without_lora_every_weight_is_trained_and_the_folder_is_a_model(base, tmp_path):
    result = train("sft", SFT, base, tmp_path / "out", lora=None, **QUICK)
    assert result.adapter is None and (result.model / "config.json").is_file()
    again = train("dpo", PAIRS, result.model, tmp_path / "dpo", lora=False, **QUICK)
    assert again.reference == result.model and again.loss_first == pytest.approx(LN2, abs=1e-3)


def finished(problem: str, number: int) -> Row:
    """A problem with a kept trace and one proven wrong."""
    candidates = [
        Candidate(
            iteration=0,
            sample_index=i,
            trace=answer(problem, shift),
            text=answer(problem, shift),
            verdict=Verdict(correct=shift == 0, method="number"),
            accepted=shift == 0,
        )
        for i, shift in enumerate((0, 1))
    ]
    return Row(index=number, id=str(number), problem=problem, candidates=candidates, final=0, accepted=True)


@pytest.mark.parametrize(
    ("format", "method"),
    [
        ("trl_sft", "sft"),
        ("trl_prompt_completion", "sft"),
        ("trl_dpo", "dpo"),
        ("trl_dpo_standard", "dpo"),
        ("trl_kto", "kto"),
    ],
)
def test_what_a_run_exports_loads_and_trains(base, tmp_path, format, method):
    file = tmp_path / "data.jsonl"
    report = export_rows([finished(p, i) for i, p in enumerate(PROBLEMS)], file, format, metadata=True)
    result = train(method, file, base, tmp_path / "out", **QUICK)
    assert result.trained and result.rows == report.rows > 0
    assert result.manifest["data"]["name"] == str(file)


# The reference and the start


def test_an_adapter_is_trained_on_and_is_its_own_reference(taught, tmp_path):
    assert taught.loss_last < taught.loss_first - 0.1
    result = train("dpo", PAIRS, taught.adapter, tmp_path / "out", **QUICK)
    assert result.reference == taught.adapter and result.base == taught.base
    first = log_of(result)[0]  # a reward is beta times the log-probability beyond the reference's
    assert abs(first["rewards/chosen"]) < 0.02 and abs(first["rewards/rejected"]) < 0.02
    on = train("sft", SFT, taught.adapter, tmp_path / "sft", **QUICK)
    assert on.loss_first < taught.loss_first - 0.1
    with pytest.raises(ValueError, match="keeps its own shape: leave lora out"):
        train("dpo", PAIRS, taught.adapter, tmp_path / "lora", lora={"r": 4}, **QUICK)


def test_merged_it_is_a_plain_folder_that_says_the_same(taught, tmp_path):
    merged = merge(taught.adapter, tmp_path / "merged")
    assert not list(merged.glob("adapter*")) and (merged / "tokenizer.json").is_file()
    on = train("sft", SFT, merged, tmp_path / "a", **QUICK)
    assert on.loss_first == pytest.approx(
        train("sft", SFT, taught.adapter, tmp_path / "b", **QUICK).loss_first, abs=0.02
    )
    with pytest.raises(ValueError, match="nothing to merge"):
        merge(merged, tmp_path / "twice")


def test_a_merge_can_be_called_again_and_overwrites_nothing_else(base, taught, tmp_path, monkeypatch):
    out = tmp_path / "merged"
    (tmp_path / "merged.part").mkdir()  # of a killed call
    assert merge(taught.adapter, out) == out and not (tmp_path / "merged.part").exists()
    with monkeypatch.context() as patched:
        patched.setattr("cotkit.train.adapters.load", lambda *_, **__: pytest.fail("merged again"))
        assert merge(taught.adapter, out) == out
    other = train("sft", SFT, base, tmp_path / "other", seed=5, **QUICK).adapter
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").touch()
    for place in (out, tmp_path / "mine"):
        with pytest.raises(ValueError, match="holds something else already: use another output"):
            merge(other, place)
    assert (tmp_path / "mine/notes.txt").is_file()


@pytest.mark.parametrize("what", ["nowhere", "empty"])
def test_a_base_that_is_no_model_is_named_with_what_there_is(tmp_path, what):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"neither a folder with a model .* \(smollm2-135m"):
        train("sft", SFT, tmp_path / what, tmp_path / "out", **QUICK)
    assert not (tmp_path / "out").exists()


# The same again


def test_one_seed_gives_the_same_weights_and_another_others(base, tmp_path):
    hashes = [
        train("sft", SFT, base, tmp_path / str(i), seed=seed, **QUICK).manifest["sha256"]
        for i, seed in enumerate((1, 1, 2))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_finished_training_is_given_back_at_once_and_another_is_refused(base, tmp_path, monkeypatch):
    first = train("sft", SFT, base, tmp_path / "out", **QUICK)
    with monkeypatch.context() as patched:
        patched.setattr("cotkit.train.running._run", lambda *_: pytest.fail("trained again"))
        assert train("sft", SFT, base, tmp_path / "out", **QUICK) == first
    with pytest.raises(ValueError, match=r"(?s)another configuration:\n  beta: 0.1 -> 0.2\n.*resume=False"):
        train("sft", SFT, base, tmp_path / "out", beta=0.2, **QUICK)
    with pytest.raises(ValueError, match="data: "):
        train("sft", SFT[1:], base, tmp_path / "out", **QUICK)
    assert train("sft", SFT[1:], base, tmp_path / "out", resume=False, **QUICK).rows == len(SFT) - 1


LONG = {"max_steps": 10, "batch_size": 2, "save_steps": 2}
SETUP = """
import os, pathlib, signal, sys
sys.path.insert(0, {here!r})
import cotkit.train.disk, cotkit.train.running
from cotkit.train.extra import loaded

loaded("torch", "transformers", "trl", "peft", "datasets")
from cotkit.train import train, trainers
from tiny import SFT

LONG = {{"max_steps": 10, "batch_size": 2, "save_steps": 2}}
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""
KILLED = """
base, out, point = args
running, disk = cotkit.train.running, cotkit.train.disk

def kill(module, name, chosen, before=False):
    real = getattr(module, name)

    def call(*given):
        if before and chosen(*given):
            die()
        made = real(*given)
        if chosen(*given):
            die()
        return made

    setattr(module, name, call)

if point == "before the rename":
    kill(disk.os, "replace", lambda part, place: pathlib.Path(place).name == "adapter", before=True)
elif point == "after the rename":
    kill(disk.os, "replace", lambda part, place: pathlib.Path(place).name == "adapter")
elif point == "before the rename, the old one gone":
    kill(disk, "remove", lambda place: place.name == "adapter")
elif point == "after the log":
    kill(running, "write_lines", lambda *_: True)
elif point == "after the manifest":
    kill(running, "write_json", lambda path, value: value["status"] == "ok")
say = (lambda line: line.startswith(point) and die()) if point.startswith("step") else None
train("sft", SFT, base, out, say=say, **LONG)
"""


@pytest.fixture(scope="module")
def forked():
    with Forked(SETUP.format(here=str(pathlib.Path(__file__).parent)), KILLED) as forked:
        yield forked


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """The training that was never killed."""
    return train("sft", SFT, base, tmp_path_factory.mktemp("whole") / "out", say=None, **LONG)


def test_a_killed_training_goes_on_from_the_last_whole_checkpoint_to_the_same_weights(
    base, tmp_path, forked, whole
):
    out = tmp_path / "killed"
    assert forked.run(base, out, "step 5 ") == -signal.SIGKILL, forked.errors
    assert open_training(out).status == "running"
    torn = out / "checkpoints/checkpoint-6"
    torn.mkdir()
    (torn / "trainer_state.json").write_text('{"global_step": 6, "log_hi')
    told = []
    result = train("sft", SFT, base, out, say=told.append, **LONG)
    assert told[0].startswith("step 5 of 10") and result.trained and result.steps == 10
    assert [entry["step"] for entry in log_of(result) if "loss" in entry] == list(range(1, 11))
    assert result.manifest["sha256"] == whole.manifest["sha256"]


POINTS = (
    "before the rename", "after the rename", "before the rename, the old one gone", "after the log",
    "after the manifest",
)  # fmt: skip


def test_killed_at_any_point_of_writing_the_result_it_goes_on_without_a_step(base, tmp_path, forked, whole):
    out = tmp_path / "killed"
    for point in POINTS:  # each call goes on with what the one before left
        assert forked.run(base, out, point) == -signal.SIGKILL, (point, forked.errors)
        assert open_training(out).status == ("ok" if point == "after the manifest" else "running")
    told = []
    result = train("sft", SFT, base, out, say=told.append, **LONG)
    assert result.trained and result.steps == 10 and told == []
    assert result.manifest["sha256"] == whole.manifest["sha256"]
    assert result.loss_last == whole.loss_last and result.detail == whole.detail
    assert sorted(path.name for path in out.iterdir()) == ["adapter", "log.jsonl", "manifest.json"]
    assert {p.name for p in whole.adapter.iterdir()} - {"training_args.bin"} == {
        p.name for p in result.adapter.iterdir()
    }
    shutil.rmtree(result.adapter)  # a finished training whose result is gone is done again
    again = train("sft", SFT, base, out, say=told.append, **LONG)
    assert "is not what was trained there" in told[0]
    assert again.manifest["sha256"] == result.manifest["sha256"]


def test_a_folder_that_no_training_wrote_is_left_alone(base, tmp_path):
    (tmp_path / "out/model").mkdir(parents=True)
    for resume in (True, False):
        with pytest.raises(ValueError, match="holds model, which no training wrote there"):
            train("sft", SFT, base, tmp_path / "out", resume=resume, **QUICK)
    assert (tmp_path / "out/model").is_dir()


# What ends one


def test_a_loss_that_is_no_number_ends_the_training_as_diverged(base, tmp_path):
    result = train("sft", SFT, base, tmp_path / "out", learning_rate=1e30, say=None, **LONG)
    assert result.status == "diverged" and not result.trained and "loss is nan at step 2" in result.detail
    assert result.adapter is None and not (tmp_path / "out/adapter").exists()
    assert not (tmp_path / "out/checkpoints/checkpoint-2").exists()
    assert log_of(result)[1]["loss"] is None  # NaN is no JSON


@pytest.mark.parametrize(
    ("loss", "norm", "first", "words"),
    [
        (1.2, 3.0, 2.0, None),
        (6.0, 3.0, 0.7, None),
        (-0.1, 0.0, 0.0, None),
        (1.2, None, 2.0, None),
        (math.nan, 1.0, 2.0, "the loss is nan at step 7: lower learning_rate"),
        (math.inf, 1.0, 2.0, "the loss is inf"),
        (1.0, math.nan, 2.0, "the gradient is nan"),
        (11.0, 1.0, 0.7, "the loss went from 0.7 to 11 at step 7"),
        (21.0, 1.0, 2.0, "from 2 to 21"),
    ],
)
def test_what_counts_as_diverged(loss, norm, first, words):
    from cotkit.train.guards import why_diverged

    said = why_diverged(loss, norm, first, 7)
    assert said == "" if words is None else words in said


def test_chosen_answers_that_become_less_likely_are_warned_of():
    from cotkit.train.running import falling

    def steps(*values):
        return [{"logps/chosen": value} for value in values] + [{"train_loss": 0.1}]

    assert "less likely: log-probability -30.0 to -39.0" in falling(steps(*[-30] * 4, *[-39] * 4))[0]
    assert falling(steps(*[-300] * 4, *[-321] * 4)) != []  # 7 %, but more than 20 nats
    assert falling(steps(*[-30] * 4, *[-32] * 4)) == falling(steps(*[-39] * 4, *[-30] * 4)) == []
    assert falling(steps(-30, -39)) == falling([{"loss": 1.0}]) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full_at_a_checkpoint_leaves_the_one_before_to_go_on_from(base, tmp_path, monkeypatch):
    import transformers

    out, write = tmp_path / "out", transformers.Trainer._save_checkpoint
    full = out / "checkpoints/checkpoint-4"

    def on_a_full_disk(self, model, trial):
        if self.state.global_step == 4:
            full.mkdir()
            (full / "optimizer.pt").symlink_to("/dev/full")
        write(self, model, trial)

    with monkeypatch.context() as patched:
        patched.setattr(transformers.Trainer, "_save_checkpoint", on_a_full_disk)
        result = train("sft", SFT, base, out, say=None, **LONG)
    assert result.status == "disk_full" and "checkpoint-2 is whole" in result.detail and not result.trained
    assert not full.exists() and open_training(out).status == "disk_full"
    assert train("sft", SFT, base, out, say=None, **LONG).steps == 10


FULL = {
    "the result": ("transformers.Trainer.save_model", lambda self, to, *_, **__: "checkpoint" not in to),
    "the manifest": ("cotkit.train.running.write_json", lambda path, value: value["status"] == "ok"),
    "the log": ("cotkit.train.running.write_lines", lambda path, lines: True),
    "the first manifest": ("cotkit.train.running.write_json", lambda path, value: True),
}


@pytest.mark.parametrize("what", FULL)
def test_a_disk_that_is_full_at_the_end_loses_no_step(base, tmp_path, monkeypatch, what):
    import importlib

    place, chosen = FULL[what]
    owner, name = place.rsplit(".", 1)
    owner = transformers_trainer() if owner.startswith("transformers") else importlib.import_module(owner)
    write, out, told = getattr(owner, name), tmp_path / "out", []

    def on_a_full_disk(*args, **options):
        if chosen(*args, **options):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, on_a_full_disk)
        result = train("sft", SFT, base, out, say=None, **LONG)
    assert result.status == "disk_full" and not result.trained and result.adapter is None
    assert "the disk is full" in result.detail and not list(tmp_path.glob("**/*.part"))
    assert train("sft", SFT, base, out, say=told.append, **LONG).trained
    assert (told == []) == (what != "the first manifest")


def transformers_trainer():
    import transformers

    return transformers.Trainer


def test_too_little_memory_is_a_status_that_says_what_to_lower(base, tmp_path, monkeypatch):
    from cotkit.train import trainers

    def too_large(*_):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(trainers, "build", too_large)
        result = train("sft", SFT, base, tmp_path / "out", **QUICK)
    assert result.status == "out_of_memory" and "lower batch_size or max_length" in result.detail
    assert open_training(tmp_path / "out").status == "out_of_memory"
    assert train("sft", SFT, base, tmp_path / "out", **{**QUICK, "batch_size": 1}, resume=False).trained


def test_rows_that_trl_leaves_out_are_a_refusal_of_data(base, tmp_path, monkeypatch):
    import trl

    make = trl.SFTTrainer.__init__

    def with_fewer(self, *args, **options):
        make(self, *args, **options)
        self.train_dataset = self.train_dataset.select(range(3))

    monkeypatch.setattr(trl.SFTTrainer, "__init__", with_fewer)
    with pytest.raises(TrainingDataError, match=f"TRL has left out {len(SFT) - 3} of {len(SFT)} rows"):
        train("sft", SFT, base, tmp_path / "out", **QUICK)


def test_no_better_evaluation_loss_ends_it_early_and_the_best_is_kept(base, tmp_path):
    wrong = [{"messages": [said("user", p), said("assistant", answer(p, 90)[::-1])]} for p in PROBLEMS]
    options = {"eval_data": wrong, "early_stopping": 1, "learning_rate": 0.05, "save_steps": 2}
    result = train("sft", SFT, base, tmp_path / "out", max_steps=40, batch_size=2, say=None, **options)
    losses = [entry["eval_loss"] for entry in log_of(result) if "eval_loss" in entry]
    assert result.trained and f"stopped early at step {result.steps}" in result.detail and result.steps < 40
    assert losses[-1] > min(losses)


def test_pairs_that_are_told_apart_for_certain_are_warned_of(base, tmp_path):
    from cotkit.train.running import WIDE_MARGIN, settled

    def steps(*values):
        return [{"rewards/margins": value} for value in values] + [{"train_loss": 0.1}]

    assert "margin 9.0, a loss near 0" in settled(steps(0, 2, 4, 9))[0]
    assert settled(steps(0, 9, 9, 4)) == settled(steps()) == settled([{"loss": 0.0}]) == []
    easy = [{**row, "rejected": [said("assistant", "I cannot say.")]} for row in PAIRS]
    strong = {"learning_rate": 0.02, "max_steps": 24, "batch_size": 4, "beta": 1.0, "lora": None, "say": None}
    result = train("dpo", easy, base, tmp_path / "strong", **strong)
    assert result.trained and log_of(result)[-2]["rewards/margins"] > WIDE_MARGIN
    assert any("told apart for certain" in warning for warning in result.warnings)
    assert train("dpo", PAIRS, base, tmp_path / "quick", **QUICK).warnings == []


# What the model is taught


@pytest.mark.parametrize("pad", ["<|endoftext|>", "<|im_end|>"], ids=["its own", "the end-of-text"])
def test_the_end_of_an_answer_is_learnt_whatever_the_padding(base, tmp_path, monkeypatch, pad):
    import transformers
    import trl

    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    tokenizer.pad_token = pad
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    trainers = []
    monkeypatch.setattr(trl.SFTTrainer, "train", lambda self, **_: trainers.append(self))
    train("sft", SFT, tmp_path / "base", tmp_path / "out", **QUICK)
    taught = [row[row != -100] for batch in trainers[0].get_train_dataloader() for row in batch["labels"]]
    texts = sorted(tokenizer.decode(row) for row in taught)
    assert len(texts) == len(SFT) and all(text.rstrip().endswith("<|im_end|>") for text in texts)
    assert all("The answer is \\boxed{" in text and "What is" not in text for text in texts)


BEGINS = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def with_beginning(base, tmp_path):
    """A base whose template writes the begin-of-text token, and whose tokenizer does too."""
    import transformers
    from tokenizers.processors import TemplateProcessing

    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    tokenizer.pad_token, tokenizer.chat_template = "<|im_end|>", BEGINS
    begin = (tokenizer.bos_token, tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin[0]} $A", special_tokens=[begin]
    )
    transformers.AutoModelForCausalLM.from_pretrained(base).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "base")
    assert again("a")["input_ids"][0] == begin[1]
    return tmp_path / "base"


TEXTS = [{n: v[0]["content"] for n, v in row.items()} for row in PAIRS]


@pytest.mark.parametrize(
    ("method", "rows"), [("sft", SFT), ("dpo", PAIRS), ("kto", KTO), ("dpo", TEXTS)],
    ids=["sft", "dpo", "kto", "dpo of texts"],
)  # fmt: skip
def test_a_text_begins_once_though_template_and_tokenizer_both_begin_it(
    with_beginning, tmp_path, monkeypatch, method, rows
):
    import transformers
    import trl

    begin, trainers = transformers.AutoTokenizer.from_pretrained(with_beginning).bos_token_id, []
    monkeypatch.setattr(
        trl.trainer.base_trainer._BaseTrainer, "train", lambda self, **_: trainers.append(self)
    )
    train(method, rows, with_beginning, tmp_path / "out", **QUICK)
    batches = list(trainers[0].get_train_dataloader())
    texts = [ids for batch in batches for name in batch if name.endswith("input_ids") for ids in batch[name]]
    assert len(texts) >= len(rows)
    assert all(ids[0] == begin and (ids == begin).sum() == 1 for ids in texts)


def test_a_text_that_is_rendered_already_is_refused_where_it_would_begin_twice(with_beginning, tmp_path):
    rendered = [{**row, "prompt": f"<|endoftext|>{row['prompt']}"} for row in TEXTS]
    with pytest.raises(
        TrainingDataError, match=r"row 1, field 'prompt': begins with <\|endoftext\|>.*messages"
    ):
        train("dpo", rendered, with_beginning, tmp_path / "out", **QUICK)


def test_another_chat_template_is_noticed_and_nothing_goes_on_with_it(base, tmp_path):
    shutil.copytree(base, tmp_path / "base")
    first = train("sft", SFT, tmp_path / "base", tmp_path / "out", **QUICK)
    file = tmp_path / "base/chat_template.jinja"
    file.write_text(file.read_text() + "{# another #}")
    with pytest.raises(ValueError, match=r"another configuration:\n  chat_template: [0-9a-f]{64} -> "):
        train("sft", SFT, tmp_path / "base", tmp_path / "out", **QUICK)
    again = train("sft", SFT, tmp_path / "base", tmp_path / "other", **QUICK)
    templates = [result.manifest["config"]["chat_template"] for result in (first, again)]
    assert templates[0] != templates[1]


def test_a_template_is_the_same_wherever_the_folder_keeps_it(base, tmp_path):
    from cotkit.train.bases import chat_template_hash

    shutil.copytree(base, tmp_path / "base")
    file = tmp_path / "base/chat_template.jinja"
    before, text, config = chat_template_hash(tmp_path / "base"), file.read_text(), "tokenizer_config.json"
    file.unlink()
    assert chat_template_hash(tmp_path / "base") != before
    known = json.loads((tmp_path / "base" / config).read_text())
    (tmp_path / "base" / config).write_text(json.dumps({**known, "chat_template": text}))
    assert chat_template_hash(tmp_path / "base") == before


# Wrong options

WRONG = [
    ({"method": "ppo"}, "grpo"),
    ({"method": "orpo"}, "none of sft, dpo, dpo_sft, kto, grpo"),
    ({"epochs": 0}, "epochs must be a number above 0: got 0"),
    ({"batch_size": 0}, "batch_size must be a whole number, at least 1"),
    ({"max_steps": True}, "max_steps"),
    ({"learning_rate": math.nan}, "learning_rate"),
    ({"beta": "0.1"}, "beta"),
    ({"device": "tpu"}, "none of auto, cpu, cuda"),
    ({"lora": {"rank": 4}}, "lora: .*rank.*options are r, alpha, dropout, target_modules"),
    ({"early_stopping": 1}, "needs eval_data"),
    ({"method": "grpo"}, "reward"),
    ({"reward": print}, "only grpo"),
    ({"method": "grpo", "reward": print, "batch_size": 6}, "multiple of num_generations"),
    ({"method": "kto", "batch_size": 1}, "at least 2"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_wrong_options_are_refused_before_anything_is_read(tmp_path, options, words):
    options = {"method": "sft", "data": "/no/such/file", "base_model": "none", **options}
    with pytest.raises(ValueError, match=words):
        train(output=tmp_path / "out", **options)


def test_without_the_extra_the_error_names_the_install_line(base, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", None)  # what `import` finds where a package is not installed
    with pytest.raises(ImportError, match=r"pip install -e '/path/to/clone\[train\]'.*missing: trl"):
        train("sft", SFT, base, tmp_path / "out", **QUICK)
    assert not (tmp_path / "out").exists()


def test_lora_options_shape_the_adapter(base, tmp_path):
    result = train(
        "sft", SFT, base, tmp_path / "out", lora=LoraOptions(r=2, target_modules=("q_proj",)), **QUICK
    )
    shape = json.loads((result.adapter / "adapter_config.json").read_text())
    assert (shape["r"], shape["lora_alpha"], shape["target_modules"]) == (2, 32, ["q_proj"])
