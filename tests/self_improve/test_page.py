"""docs/self_improvement.md says what is so."""

from __future__ import annotations

import math
import os
import pathlib
import re
import subprocess
import sys

import pytest
from scripted_loop import problems

from cotkit.analysis.alarms import FEW, LEAST, LIMITS, not_looked_at
from cotkit.pipelines import load_self_improvement
from cotkit.pipelines.plan import LEAST_DEV, POLICIES, Plan

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "self_improvement.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def rows(heading):
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [(re.findall(r"`(\w+)`", one[0]), one) for one in cells[2:]]


def test_its_alarms_have_the_limits_that_hold():
    shown = {}
    for codes, (*_, amber, red) in rows("Alarms"):
        shown |= dict.fromkeys(codes, (float(amber), math.inf if red == "never" else float(red)))
    assert shown == LIMITS
    assert f"fewer than {LEAST} give a warning" in WORDS and f"fewer than {LEAST_DEV} dev" in WORDS
    assert f"on at least {LEAST} problems" in WORDS


def test_its_alarms_need_as_many_as_it_says():
    counts = (
        "outputs",
        "decided",
        "scored",
        "judged",
        "pleased",
        "frozen",
        "drift",
        "holdout",
        "pairs",
        "refined",
    )
    setting = {"generations": 2, "critics": True, "verified": True, "cycle": 1}
    missing = not_looked_at(**dict.fromkeys(counts, 0), **setting)
    of_five = {code for code, why in missing.items() if why.endswith(f"fewer than {FEW}")}
    assert f"need {LEAST} problems" in WORDS and set(missing) == set(LIMITS)
    assert f"`judge_failures` and `ceiling` need {LEAST} judged traces" in WORDS
    assert f"`chosen_longer` {LEAST} pairs" in WORDS
    said = WORDS.split("Five are enough for ")[1].split(". ")[0]
    assert set(re.findall(r"`(\w+)`", said)) == of_five and FEW == 5


def test_its_policies_are_those_there_are():
    shown = {}
    for methods, (_, told) in rows("What is trained on"):
        shown |= {method: set(re.findall(r"`(\w+)`", told)) for method in methods}
    assert shown == {method: set(policies) for method, policies in POLICIES.items()}


def test_its_first_python_runs(serve, tmp_path):
    server = serve(lambda request: "1 + 1 = 2. The answer is \\boxed{2}.")
    env = {
        **os.environ,
        "OPENAI_API_KEY": "sk-page-test",
        "OPENAI_BASE_URL": server.base_url,
        "COTKIT_ROOT": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[0]], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0 and "'generated'" in done.stdout, done.stderr
    assert (tmp_path / "runs/first-loop/report.json").is_file()


def test_its_trainer_is_one_and_keeps_to_the_manifest(world, monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    scope = {}
    exec(blocks("python")[1], scope)
    trainer = scope["Remote"]()
    Plan(problems(200), world.model("actor-40"), trainer=trainer)
    output = tmp_path / "loop" / "cycle-00" / "train"
    manifest = trainer.train("sft", tmp_path / "sft.jsonl", None, output)
    assert manifest["model"] == "/models/loop-cycle-00" and scope["BASE"] in commands[-1]
    trainer.train("dpo", tmp_path / "dpo.jsonl", manifest, tmp_path / "loop" / "cycle-01" / "train")
    assert manifest["model"] in commands[-1] and trainer.serve(manifest).model == manifest["model"]


@pytest.mark.filterwarnings("ignore:evaluation_dimensions")
def test_its_file_loads(tmp_path, monkeypatch):
    for name in ("OPENAI_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.setenv(name, "a-key-for-tests")
    (tmp_path / "config.yaml").write_text(blocks("yaml")[0])
    loaded = load_self_improvement(tmp_path / "config.yaml")
    (dimension,) = loaded["options"]["task"]["dimensions"]
    assert dimension["anchors"] == {3: "no", 6: "in parts", 10: "yes"}
    assert Plan(**loaded["options"]).gold is False and loaded["training"]["base_model"] == "smollm2-135m"


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
