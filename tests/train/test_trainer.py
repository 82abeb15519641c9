"""The trainers of a self-improvement run: what they refuse when they are made, which option wins, and chains
of trainings of a tiny model."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from tiny import PAIRS, SFT, needs_training

from cotkit.train import EmbeddedTrainer, FolderTrainer, LoraOptions, TrainingDataError

pytestmark = [needs_training, pytest.mark.usefixtures("one_thread")]
QUICK = {"max_steps": 2, "batch_size": 2, "say": None}

WRONG = [
    ({"base": "smollm3"}, ValueError, r"'smollm3' is no embedded model \(smollm2-135m, .*FolderTrainer"),
    ({"options": {"epoch": 1}}, ValueError, "epoch is no option of cotkit.train.train: eval_data, epochs"),
    ({"options": {"epochs": -1}}, ValueError, "epochs must be a number above 0: got -1"),
    ({"options": {"learning_rate": "1e-3"}}, ValueError, "learning_rate must be .* got '1e-3'"),
    ({"options": {"device": "tpu"}}, ValueError, "none of auto, cpu, cuda"),
    ({"chat": {"model": "other"}}, TypeError, "chat: model is set by the trainer"),
    ({"options": {"early_stopping": 2}}, ValueError, "early_stopping needs eval_data"),
    ({"options": {"resume": False}}, ValueError, "resume is no option of a training between cycles"),
    ({"options": {"lora": {"rank": 4}}}, ValueError, "lora: .*rank"),
    ({"options": {"lora": {"r": "4"}}}, ValueError, "lora: r is '4'; r is a whole number"),
    ({"options": {"lora": {"target_modules": []}}}, ValueError, r"lora: target_modules is \[\]"),
    ({"first": {"lora": {"r": 4}}}, ValueError, "first: .* share one lora: give it in options"),
    ({"by_method": {"dpo": {"lora": None}}}, ValueError, "dpo: .* share one lora"),
    ({"by_method": {"grpo": {}}}, ValueError, "by_method: 'grpo' is none of sft, dpo, dpo_sft, kto"),
    ({"by_method": {"kto": {"batch_size": 1}}}, ValueError, "at least 2"),
    ({"first": {"max_lenght": 64}}, ValueError, "max_lenght"),
    ({"chat": {"temprature": 0}}, TypeError, "temprature"),
    ({"chat": {"parallel": 0}}, ValueError, "chat: parallel must be a whole number above 0"),
    ({"chat": {"adapter": "x.gguf"}}, TypeError, "chat: adapter is set by the trainer"),
]


@pytest.mark.parametrize(("options", "error", "words"), WRONG)
def test_a_wrong_option_is_refused_when_the_trainer_is_made(options, error, words):
    with pytest.raises(error, match=words):
        EmbeddedTrainer(**options)


def test_a_method_that_the_options_do_not_fit_is_found_by_check_before_anything_is_paid():
    trainer = EmbeddedTrainer(options={"batch_size": 1})
    trainer.check(["sft", "dpo"])
    with pytest.raises(ValueError, match="kto compares within a batch"):
        trainer.check(["sft", "kto"])
    with pytest.raises(ValueError, match="grpo"):
        trainer.check(["grpo"])


def test_the_checks_load_no_training_library():
    code = (
        "import sys; from cotkit.train import EmbeddedTrainer\n"
        "EmbeddedTrainer(options={'lora': {'r': 4}}, chat={'temperature': 0.5}).check(['dpo', 'kto'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "trl", "peft", "datasets", "gguf"} & set(done.stdout.split())


def test_by_method_wins_over_first_and_first_over_options_and_its_rate_is_one_for_sft():
    trainer = EmbeddedTrainer(
        options={"epochs": 1, "batch_size": 4},
        first={"epochs": 3, "learning_rate": 1e-3, "batch_size": 2},
        by_method={"kto": {"learning_rate": 1e-4, "batch_size": 8}},
    )
    assert trainer.options_of("sft", True) == {"epochs": 3, "batch_size": 2, "learning_rate": 1e-3}
    assert trainer.options_of("sft", False) == {"epochs": 1, "batch_size": 4}
    assert trainer.options_of("dpo", True) == {"epochs": 3, "batch_size": 2}  # the rate is dpo's own
    assert trainer.options_of("kto", True) == {"epochs": 3, "batch_size": 8, "learning_rate": 1e-4}
    everywhere = EmbeddedTrainer(options={"learning_rate": 1e-5})
    assert everywhere.options_of("dpo", True) == {"learning_rate": 1e-5}


def test_what_is_written_down_is_json_and_minds_only_what_the_result_depends_on():
    shape = LoraOptions(r=4, target_modules=("q_proj",))
    options = {"lora": shape, "device": "cpu", "say": print}
    made = EmbeddedTrainer(options=options, by_method={"dpo": {"say": None}})
    told = json.loads(json.dumps(made.describe()))
    assert told["options"] == {"lora": {"r": 4, "alpha": 32, "dropout": 0.0, "target_modules": ["q_proj"]}}
    assert told["by_method"] == {"dpo": {}} and told["base"] == "smollm2-135m"


def test_what_is_served_is_asked_like_the_untrained_actor_unless_chat_says_otherwise(tmp_path, monkeypatch):
    import cotkit.chat

    (tmp_path / "student.gguf").write_bytes(b"GGUF")
    manifest = {"served": str(tmp_path / "student.gguf"), "served_as": "gguf"}
    actor = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 100}
    plain, own = EmbeddedTrainer(), EmbeddedTrainer(chat={"temperature": 0.2, "parallel": 2})
    monkeypatch.setattr(cotkit.chat, "local_model", lambda name, **options: options)
    whole = {"gguf": tmp_path / "student.gguf"}
    assert plain.serve(manifest) == whole
    assert plain.serve({**manifest, "sampling": actor}) == {**whole, **actor}
    assert own.serve({**manifest, "sampling": actor}) == {**whole, **actor, **own.chat}


# Chains of trainings


def folder_trainer(base, **options):
    """A trainer whose server is a list of what it was asked to serve."""
    asked = []

    def server(folder, name):
        asked.append((folder, name))
        return name

    made = FolderTrainer(base, options={**QUICK, **options}, server=server)
    made.asked = asked
    return made


def written(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def noted(manifest) -> dict:
    """As the loop reads it from disk."""
    return json.loads(json.dumps(manifest))


@pytest.mark.parametrize("lora", [True, {"r": 2}, LoraOptions(r=2), None, False])
def test_trainings_follow_each_other_whatever_lora_is(base, tmp_path, lora):
    import transformers

    trainer = folder_trainer(base, lora=lora)
    data, pairs = written(tmp_path / "sft.jsonl", SFT), written(tmp_path / "dpo.jsonl", PAIRS)
    first = noted(trainer.train("sft", data, None, tmp_path / "0/train"))
    second = noted(trainer.train("dpo", pairs, first, tmp_path / "1/train"))
    kind = "adapter" if lora else "model"
    assert [m["status"] for m in (first, second)] == ["ok", "ok"]
    assert second["start"] == second["reference"] == first[kind] and ("adapter" in second) == bool(lora)
    rank = first["manifest"]["config"]["lora"] and first["manifest"]["config"]["lora"]["r"]
    assert rank == (16 if lora is True else 2 if lora else None)
    for manifest in (first, second):
        trainer.serve(manifest)
        folder, name = trainer.asked[-1]
        assert name == f"{pathlib.Path(base).name}-{manifest['manifest']['sha256'][:12]}"
        assert transformers.AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 0
        assert not (folder / "adapter_config.json").exists() and (folder / "tokenizer.json").is_file()
    assert trainer.asked[0] != trainer.asked[1]


def test_a_run_folder_that_was_moved_is_gone_on_with_and_one_that_is_gone_is_named(base, tmp_path):
    trainer = folder_trainer(base)
    pairs = written(tmp_path / "dpo.jsonl", PAIRS)
    data = written(tmp_path / "run/sft.jsonl", SFT)
    first = noted(trainer.train("sft", data, None, tmp_path / "run/0/train"))
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match="put the run's folder back"):
        trainer.serve(first)
    with pytest.raises(FileNotFoundError, match="put the run's folder back"):
        trainer.train("dpo", pairs, first, tmp_path / "moved/1/train")
    here = {**first, "folder": str(tmp_path / "moved/0/train")}
    trainer.serve(here)
    assert trainer.asked[-1][0] == tmp_path / "moved/0/train/merged"
    shutil.rmtree(tmp_path / "moved/0/train/merged")  # it is made again from the adapter
    trainer.serve(here)
    assert (trainer.asked[-1][0] / "config.json").is_file()
    assert trainer.train("dpo", pairs, here, tmp_path / "moved/1/train")["status"] == "ok"


def test_how_many_rows_a_training_would_take_is_known_before_it(base, tmp_path):
    long = {"messages": [SFT[0]["messages"][0], {"role": "assistant", "content": "one " * 200}]}
    data = written(tmp_path / "sft.jsonl", [*SFT, long])
    trainer = folder_trainer(base, max_length=128)
    assert trainer.fitting("sft", data, None) == {"rows": len(SFT), "drops": {"too_long": 1}}
    made = trainer.train("sft", data, None, tmp_path / "train")
    assert (made["rows"], made["drops"]) == (len(SFT), {"too_long": 1})
    assert trainer.fitting("dpo", written(tmp_path / "dpo.jsonl", PAIRS), made)["rows"] == len(PAIRS)
    with pytest.raises(TrainingDataError, match="no row fits"):
        folder_trainer(base, max_length=8).fitting("sft", data, None)


def test_a_champion_whose_chat_template_was_changed_is_not_trained_on(base, tmp_path):
    shutil.copytree(base, tmp_path / "base")
    trainer = folder_trainer(tmp_path / "base")
    made = noted(trainer.train("sft", written(tmp_path / "sft.jsonl", SFT), None, tmp_path / "0/train"))
    template = tmp_path / "base/chat_template.jinja"
    template.write_text(template.read_text() + "{# another #}")
    pairs = written(tmp_path / "dpo.jsonl", PAIRS)
    for step in (trainer.fitting, lambda *given: trainer.train(*given, tmp_path / "1/train")):
        with pytest.raises(ValueError, match=r"chat template in .*base is another .* put that one back"):
            step("dpo", pairs, made)
    assert not (tmp_path / "1").exists()


def test_a_folder_trainer_says_what_it_needs(base, tmp_path):
    with pytest.raises(TypeError, match=r"server: .*vllm serve FOLDER .*cotkit\.ChatModel"):
        FolderTrainer(base)
    with pytest.raises(ValueError, match=r"neither a folder with a model .*`hf download NAME`"):
        FolderTrainer("nobody/no-such-model", server=print)
    with pytest.raises(ValueError, match="use EmbeddedTrainer"):
        FolderTrainer("smollm2-135m", server=print)
    trainer = folder_trainer(base)
    made = trainer.train("sft", written(tmp_path / "sft.jsonl", SFT), None, tmp_path / "train")
    with pytest.raises(ValueError, match=r"is an adapter: cotkit\.train\.merge"):
        FolderTrainer(made["adapter"], server=print)


def test_rows_that_are_refused_are_one_kind_of_error_and_a_full_disk_another(base, tmp_path, monkeypatch):
    import errno

    trainer = folder_trainer(base, max_length=8)
    with pytest.raises(TrainingDataError, match="no row fits"):
        trainer.train("sft", written(tmp_path / "sft.jsonl", SFT), None, tmp_path / "long")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("cotkit.train.running.write_json", full)
    with pytest.raises(RuntimeError, match="training stopped, disk full: the disk is full"):
        folder_trainer(base).train("sft", tmp_path / "sft.jsonl", None, tmp_path / "full")
