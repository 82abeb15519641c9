"""What the README shows works: its Python runs, its commands exist, its links and tables are true."""

from __future__ import annotations

import ast
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cotkit.verify import isolation

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


PYTHON = blocks("python")


def answer(request):
    """Solves nothing, but says so in the right form; judges kindly."""
    if "response_format" in request.body:
        names = ("correctness", "clarity", "completeness")
        body = ", ".join(f'"{name}": {{"reason": "r", "score": 9}}' for name in names)
        return f'{{{body}, "feedback": ""}}'
    return "1 + 1 = 2. The answer is \\boxed{2}."


@pytest.mark.parametrize("code", PYTHON, ids=[f"block {n}" for n in range(1, len(PYTHON) + 1)])
def test_its_python_runs(code, serve, tmp_path):
    if "run_python" in code and isolation().weak:
        pytest.skip(f"no sandbox on this machine: {'; '.join(isolation().missing)}")
    server = serve(answer)
    code = code.replace("max_concurrency=32", "max_concurrency=32, price=(0.25, 2.0)")
    env = {
        **os.environ,
        "OPENAI_API_KEY": "sk-readme-test",
        "OPENAI_BASE_URL": server.base_url,
        "COTKIT_ROOT": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "first-try" in code:
        assert (tmp_path / "first-try" / "sft.jsonl").exists() and "20 given =" in done.stdout
        assert server.calls > 80


def test_what_its_comments_say_is_true():
    import cotkit

    assert cotkit.check_answer(r"\boxed{\frac{1}{2}}", "0.5").correct is True
    assert cotkit.check_answer(r"\boxed{\frac{1}{3}}", r"\frac{1}{2}").correct is False
    assert cotkit.extract_answer("... so 6 * 7 = 42. The answer is \\boxed{42}.") == "42"
    assert cotkit.run_python("print(2**100 % 97)", allow_weak_isolation=True).answer == "16"


def commands():
    text = "\n".join(blocks("bash")).replace("\\\n", " ")
    return [line.split("#")[0].split() for line in text.splitlines() if line.strip()]


def test_its_make_targets_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {c[1] for c in commands() if c[0] == "make"} | set(re.findall(r"`make ([a-z]+)`", README))
    assert {"demo", "test", "lab"} <= named <= set(targets)


def test_its_cotkit_commands_take_those_parameters():
    from cotkit.report import find_notebook, read_notebook, read_parameters

    runs = [c for c in commands() if c[:2] == ["cotkit", "run"]]
    assert sum("-p" in command for command in runs) >= 2
    for command in runs:
        known = {p.name for p in read_parameters(read_notebook(find_notebook(command[2])))}
        given = {word.split("=")[0] for flag, word in itertools.pairwise(command) if flag == "-p"}
        assert given <= known


def test_its_model_file_loads(tmp_path, monkeypatch):
    import cotkit

    monkeypatch.setenv("DEEPSEEK_API_KEY", "a-key-for-tests")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-tests")
    path = tmp_path / "models.yaml"
    path.write_text(blocks("yaml")[0])
    models = cotkit.load_models(path)
    assert set(models) == set(yaml.safe_load(blocks("yaml")[0])["roles"]) == {"generator", "judge"}
    assert len(models["generator"].endpoints) == 2


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    listed = [*project["dependencies"], *itertools.chain.from_iterable(extras)]
    section = README.split("## Dependencies")[1].split("\n## ")[0]
    cells = " ".join(row.split("|")[1] for row in section.splitlines() if row.startswith("|"))
    named = set(re.findall(r"[a-z0-9-]+", cells))
    assert {Requirement(r).name for r in listed} == named - {"package", "---", "-"}


BUILT_IN = {*sys.stdlib_module_names, "cotkit", "cotkit_sandbox"}  # the last is made of files of the package


def test_every_package_that_is_imported_is_named_there():
    section = README.split("## Dependencies")[1].split("\n## ")[0]
    named = {canonicalize_name(word) for word in re.findall(r"[\w-]+", section)}
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "cotkit").rglob("*.py")]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    modules = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    modules = {module.split(".")[0] for module in modules} - BUILT_IN
    packages = {"yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow", "bs4": "beautifulsoup4"}
    imported = {canonicalize_name(packages.get(module, module)) for module in modules}
    assert "numpy" in imported and imported <= named, imported - named


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_notebook_is_in_its_table():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"notebooks/{path.name}" in README
