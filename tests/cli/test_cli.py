"""The command as a person types it: what it prints, where, and how it exits."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys

import nbformat
import pytest

from cotkit import cli

V4 = nbformat.v4


def notebook(path: pathlib.Path, *sources: str, parameters: str = "n: int = 3  # how many") -> pathlib.Path:
    cells = [V4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [V4.new_code_cell(source) for source in sources]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(V4.new_notebook(cells=cells), path)
    return path


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    notebook(tmp_path / "notebooks" / "01_study.ipynb")
    monkeypatch.setenv("COTKIT_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nothing_runs(monkeypatch):
    monkeypatch.setattr("papermill.execute_notebook", lambda *_, **__: pytest.fail("it started"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("run", "which notebook? There are: study"),
        ("run stdy", "Did you mean 'study'"),
        ("run study -p n", "NAME=VALUE, not 'n'"),
        ("run study -p m=1", "no parameter 'm'"),
        ("run study -p n=1.5", "not a whole number"),
        ("run study -p n=1 -p n=2", "given twice"),
        ("run study -f absent.yaml", "absent.yaml"),
        ("run study -f list.yaml", "one mapping"),
        ("show absent-run", "is no run folder"),
        ("export absent-run -o x.jsonl", "is no run folder"),
        ("models path absent-model", "absent-model"),
        ("strip pyproject.toml", "not a notebook"),
    ],
)
def test_a_wrong_command_gets_one_line_and_exit_code_2(project, nothing_runs, capsys, command, said):
    (project / "list.yaml").write_text("[1]")
    assert cli.main(command.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("cotkit: ") and said in err


def test_debug_shows_the_traceback(project, nothing_runs):
    with pytest.raises(ValueError, match="no parameter"):
        cli.main(["run", "study", "-p", "m=1", "--debug"])


def test_values_of_the_command_line_win_over_the_file(tmp_path):
    (tmp_path / "p.yaml").write_text("n: 1\nmodel: a=b\n")
    assert cli._parameters(["n=2", "rule=x=y"], str(tmp_path / "p.yaml")) == {
        "n": "2",
        "model": "a=b",
        "rule": "x=y",
    }


def test_a_file_of_roles_takes_no_actor_and_no_problems_beside_it(tmp_path):
    (tmp_path / "c.yaml").write_text("self_improvement_config: {task_description: Explain.}\n")
    file = str(tmp_path / "c.yaml")
    assert cli._parameters(["cycles=2"], file) == {"config": file, "cycles": "2"}
    with pytest.raises(
        ValueError, match=r"c\.yaml names its own actor and problems, so -p model=\.\.\. would"
    ):
        cli._parameters(["cycles=2", "model=gpt-5"], file)


def test_the_help_of_a_notebook_lists_its_parameters(project, capsys):
    assert cli.main(["run", "study", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--overwrite" in out and "n: int = 3\n      how many" in out


def test_strip_check_fails_until_the_notebook_is_stripped(project, capsys):
    assert cli.main(["strip", "--check"]) == 1
    assert "01_study.ipynb" in capsys.readouterr().out
    assert cli.main(["strip"]) == 0
    assert cli.main(["strip", "--check"]) == 0


def test_a_notebook_that_fails_exits_1_names_the_cell_and_keeps_what_it_did(project, capsys):
    notebook(
        project / "notebooks" / "02_broken.ipynb",
        "from cotkit.report import Report\nReport('Broken').metric('seen', n)\nprint('told', n)",
        "def deep():\n    raise LookupError('no such <row>')\ndeep()",
        "print('never')",
    )
    assert cli.main(["run", "broken", "-p", "n=7", "--name", "one"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "[1/4] n: int = 3" in err and "    told 7" in err, "progress goes to stderr"
    assert "cotkit: 02_broken.ipynb failed in cell 3 of 4" in err and "LookupError: no such <row>" in err
    assert "Traceback (most recent call last):\n  File" not in err and "TCP" not in err
    folder = project / "reports" / "one"
    page, record = (folder / "report.html").read_text(), json.loads((folder / "report.json").read_text())
    assert page.index("This run failed") < page.index("told 7") and "no such &lt;row&gt;" in page
    assert record["status"] == "failed" and record["error"]["name"] == "LookupError"
    assert record["metrics"][0]["value"] == 7
    kept = nbformat.read(folder / "notebook.ipynb", as_version=4)
    assert [bool(cell.get("outputs")) for cell in kept.cells] == [False, False, True, True, False]


def test_an_interrupt_keeps_what_was_done_and_exits_130(project):
    notebook(
        project / "notebooks" / "03_long.ipynb",
        "print('first')",
        "import time\nprint('waiting', flush=True)\ntime.sleep(600)",
    )
    command = [sys.executable, "-m", "cotkit.cli", "run", "long", "--name", "one"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = ""
            while "waiting" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
            assert process.wait(timeout=120) == 130, rest
        finally:
            process.kill()
    assert "interrupted" in rest and "Traceback" not in rest
    record = json.loads((project / "reports" / "one" / "report.json").read_text())
    assert record["error"]["name"] == "KeyboardInterrupt" and record["error"]["cell"] == 3
    assert "first" in (project / "reports" / "one" / "notebook.ipynb").read_text()


def test_the_command_is_light_until_it_works():
    heavy = "papermill|nbconvert|pandas|matplotlib|openai|ipywidgets|torch|jupyter_client"
    code = (
        "import sys, contextlib; from cotkit import cli\n"
        "with contextlib.suppress(SystemExit): cli.main(['--help'])\n"
        f"print([m for m in '{heavy}'.split('|') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]"), done.stdout


def test_bench_passes_its_options_on(capfd):
    assert cli.main(["bench", "--help"]) == 0
    assert "--repeats" in capfd.readouterr().out


def test_merge_says_what_does_not_fit(tmp_path, capsys):
    assert cli.main(["merge", str(tmp_path / "out"), str(tmp_path / "nothing")]) == 2
    assert "is no run folder" in capsys.readouterr().err
