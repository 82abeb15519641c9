"""The `cotkit` command. Each subcommand is one function below; what it needs is imported when it runs.

Results go to stdout, progress and errors to stderr. A user's error is one message without a traceback
(`--debug` shows it): exit code 2 for a wrong argument, 1 for a run that failed, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import cotkit


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    if rest and arguments.command != "bench":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest  # the benchmark's own options
    if arguments.command is None:
        parser.print_help()
        return 0
    try:
        return arguments.action(arguments) or 0
    except KeyboardInterrupt:
        print("cotkit: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        code = _exit_code(error)
        if code is None or getattr(arguments, "debug", False):
            raise
        print(f"cotkit: {error}", file=sys.stderr)
        return code


def _exit_code(error: Exception) -> int | None:
    """2 for what the user can mend in the command, 1 for what failed on the way, None for a fault of ours."""
    from cotkit.chat import BudgetExceeded, ModelError, WeightsError
    from cotkit.report import NotebookFailed
    from cotkit.verify import SandboxTooWeak

    if isinstance(error, (NotebookFailed, ModelError, BudgetExceeded, WeightsError)):
        return 1
    return 2 if isinstance(error, (ValueError, OSError, SandboxTooWeak)) else None


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    parser = argparse.ArgumentParser(
        prog="cotkit", description="Chain-of-thought data that can be trusted.", parents=[common]
    )
    parser.add_argument("--version", action="version", version=f"cotkit {cotkit.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    run = commands.add_parser(
        "run", help="run a notebook and write its report", parents=[common], add_help=False
    )
    run.add_argument("notebook", nargs="?", help="a name such as 'distillation', or a path")
    run.add_argument(
        "-p", "--parameter", action="append", default=[], metavar="NAME=VALUE", help="set a parameter"
    )
    run.add_argument("-f", "--file", metavar="FILE", help="parameters from a YAML or JSON file (-p wins)")
    for short in ("cycles", "iterations"):
        run.add_argument(f"--{short}", metavar="N", help=f"self_improvement: short for -p {short}=N")
    run.add_argument("--name", metavar="RUN", help="name of the run (default: notebook, date and time)")
    run.add_argument("--output", metavar="FOLDER", help="where runs are written (default: reports)")
    run.add_argument("--overwrite", action="store_true", help="replace a run of that name")
    run.add_argument("--open", action="store_true", help="open the report in a browser")
    run.add_argument("-q", "--quiet", action="store_true", help="no progress lines")
    run.add_argument("-h", "--help", action="store_true", help="this help, and the notebook's parameters")
    run.set_defaults(action=_run, parser=run)

    export = commands.add_parser("export", help="write a run's traces for a trainer", parents=[common])
    export.add_argument("run", help="a run folder, or a name under runs/")
    export.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    export.add_argument(
        "--format", default="trl_sft", help="trl_sft, trl_dpo, messages, camel, ... (default: %(default)s)"
    )
    export.add_argument("--policy", help="which traces or pairs are taken")
    export.add_argument("--reasoning", help="how the reasoning is written")
    export.set_defaults(action=_export)

    show = commands.add_parser("show", help="what a run folder holds", parents=[common])
    show.add_argument("run", help="a run folder, or a name under runs/")
    show.set_defaults(action=_show)

    audit = commands.add_parser("audit", help="are the references of these problems true?", parents=[common])
    audit.add_argument("path", metavar="PATH", help="a file of problems, or a folder of such files")
    audit.add_argument("--json", action="store_true", help="print the findings as JSON")
    audit.add_argument(
        "--timeout",
        type=float,
        default=20.0,
        metavar="S",
        help="seconds for a program (default: %(default)s)",
    )
    audit.add_argument(
        "--workers", type=int, default=2, metavar="N", help="programs at once (default: %(default)s)"
    )
    audit.add_argument(
        "--allow-weak-isolation",
        action="store_true",
        help="run the programs also where the sandbox cannot keep them from files and the network",
    )
    audit.set_defaults(action=_audit)

    compare = commands.add_parser(
        "compare", help="two runs of one notebook side by side on a page", parents=[common]
    )
    for place in ("first", "second"):
        compare.add_argument(place, metavar="REPORT", help="a report's folder, its report.json, or a name")
    compare.add_argument("-o", "--output", metavar="FILE", help="the page (default: in the second's folder)")
    compare.set_defaults(action=_compare)

    merge = commands.add_parser("merge", help="one run folder out of several of one kind", parents=[common])
    merge.add_argument("output", metavar="OUT", help="the run folder to write, or a name under runs/")
    merge.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or names under runs/")
    merge.set_defaults(action=_merge)

    bench = commands.add_parser(
        "bench", help="speed, bytes and survival against bare loops", add_help=False, parents=[common]
    )
    bench.set_defaults(action=_bench)

    models = commands.add_parser("models", help="the embedded models' weights", parents=[common])
    verbs = models.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="what there is, and what is on this machine", parents=[common])
    for verb, what in (
        ("pull", "fetch the weights of a model"),
        ("path", "where the weights of a model are"),
    ):
        verbs.add_parser(verb, help=what, parents=[common]).add_argument("name")
    models.set_defaults(action=_models)

    strip = commands.add_parser("strip", help="take outputs out of notebooks", parents=[common])
    strip.add_argument("paths", nargs="*", metavar="NOTEBOOK", help="default: notebooks/*.ipynb")
    strip.add_argument("--check", action="store_true", help="change nothing, fail if one holds outputs")
    strip.set_defaults(action=_strip)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.help:
        return _run_help(arguments)
    if arguments.notebook is None:
        raise ValueError(f"which notebook? There are: {', '.join(_notebook_names()) or 'none'}")
    from cotkit.report import NotebookFailed, execute_notebook

    short = [f"{name}={value}" for name in ("cycles", "iterations") if (value := getattr(arguments, name))]
    try:
        paths = execute_notebook(
            arguments.notebook,
            _parameters([*arguments.parameter, *short], arguments.file),
            arguments.output,
            run_name=arguments.name,
            overwrite=arguments.overwrite,
            progress=not arguments.quiet,
        )
    except NotebookFailed as failed:
        if arguments.open:
            _open(failed.paths.html)
        raise
    _print_result(paths)
    if arguments.open:
        _open(paths.html)
    return 0


def _parameters(pairs: Sequence[str], file: str | None) -> dict[str, Any]:
    """The values of `-f`, then those of `-p`, as given; the notebook's types are applied later."""
    values: dict[str, Any] = {}
    of_roles = False
    if file:
        import yaml

        try:
            values = yaml.safe_load(pathlib.Path(file).read_text(encoding="utf-8")) or {}
        except yaml.YAMLError as error:
            raise ValueError(f"{file} is not YAML: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"{file} must hold one mapping of parameter names to values")
        of_roles = "self_improvement_config" in values  # and of a task, read by the notebook itself
        values = {"config": str(pathlib.Path(file).resolve())} if of_roles else values
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"-p takes NAME=VALUE, not {pair!r}")
        if name.strip() in given:
            raise ValueError(f"parameter {name.strip()!r} is given twice")
        given[name.strip()] = value
    if clash := [name for name in _OF_THE_FILE if of_roles and name in given]:
        raise ValueError(
            f"{file} names its own actor and problems, so -p {clash[0]}=... would not be used: change the "
            "file, or leave one of the two out"
        )
    return {**values, **given}


_OF_THE_FILE = (
    "problems",
    "n_problems",
    "model",
)  # of self_improvement; all other parameters go over the file


def _run_help(arguments: argparse.Namespace) -> int:
    arguments.parser.print_help()
    if arguments.notebook is None:
        print(f"\nnotebooks: {', '.join(_notebook_names()) or 'none'}")
        return 0
    from cotkit.report import find_notebook, read_notebook, read_parameters

    path = find_notebook(arguments.notebook)
    print(f"\nparameters of {path.name}:")
    for parameter in read_parameters(read_notebook(path), path.stem):
        print(f"  {parameter.name}: {parameter.annotation or '(no type)'} = {parameter.default}")
        if parameter.comment:
            print(f"      {parameter.comment}")
    return 0


def _notebook_names() -> list[str]:
    from cotkit.report import all_notebooks, notebook_name

    return [notebook_name(path) for path in all_notebooks()]


def _print_result(paths: Any) -> None:
    """Where the report is, and the files the notebook says it wrote."""
    import json

    record = json.loads(paths.json.read_text(encoding="utf-8"))
    for what, path in (("report", paths.html), ("notebook", paths.ipynb), ("numbers", paths.json)):
        print(f"{what:<9} {_short(path)}")
    for entry in record["files"]:
        print(f"{'file':<9} {entry['path']}  ({entry['caption']})")


def _short(path: pathlib.Path) -> str:
    """Relative to the current folder when it is below it."""
    return str(path.relative_to(pathlib.Path.cwd())) if path.is_relative_to(pathlib.Path.cwd()) else str(path)


def _open(page: pathlib.Path) -> None:
    import webbrowser

    webbrowser.open(page.as_uri())


def _export(arguments: argparse.Namespace) -> int:
    options = {name: value for name in ("policy", "reasoning") if (value := getattr(arguments, name))}
    options |= {"format": arguments.format, "allow_empty": False}
    report = cotkit.open_run(arguments.run).export(arguments.output, **options)
    print(report)
    for path in getattr(report, "beside", []):
        print(f"beside it: {path}")
    for warning in getattr(report, "warnings", []):
        print(f"cotkit: {warning}", file=sys.stderr)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from cotkit.runs import counts_line

    run = cotkit.open_run(arguments.run)
    report = run.report
    print(f"{report['name']}: {counts_line(report)}")
    for reason, count in report["drops"].items():
        print(f"{count:8,}  {reason}")
    for cycle in report.get("cycles", []):
        print(f"cycle {cycle['cycle']}: {cycle['status']}; {cycle['decision']['reason']}")
    if report.get("stopped"):
        print(f"stopped: {report['stopped']}")
    if report.get("seconds"):
        print(f"seconds: {report['seconds']:,.1f}")
    print(f"folder: {run.path}")
    return 0


def _audit(arguments: argparse.Namespace) -> int:
    """0 = every program ran and nothing was found."""
    import json

    from cotkit.verify import audit_files, findings_table

    options = {
        "timeout": arguments.timeout,
        "workers": arguments.workers,
        "allow_weak_isolation": arguments.allow_weak_isolation,
    }
    reports = []
    for name, report in audit_files(arguments.path, **options):
        print(f"{name}: {report.summary()} ({report.seconds:.0f} s)", file=sys.stderr, flush=True)
        reports.append((name, report))
    clean = all(report.clean for _, report in reports)
    if arguments.json:
        files = {name: report.as_dict() for name, report in reports}
        print(json.dumps({"clean": clean, "files": files}, indent=2, ensure_ascii=False))
    else:
        print(findings_table(reports))
    return 0 if clean else 1


def _compare(arguments: argparse.Namespace) -> int:
    from cotkit.report import compare_reports, write_index

    page = compare_reports(arguments.first, arguments.second, arguments.output).resolve()
    if not arguments.output:
        write_index(page.parent.parent)
    print(_short(page))
    return 0


def _merge(arguments: argparse.Namespace) -> int:
    from cotkit.pipelines import merge_runs

    print(merge_runs(arguments.runs, arguments.output))
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    """benchmarks/bench.py of the checkout, which the installed package does not hold."""
    import subprocess

    from cotkit.paths import root

    script = root() / "benchmarks" / "bench.py"
    if not script.is_file():
        raise ValueError(f"cotkit bench needs a checkout of cotkit; there is no {script}")
    return subprocess.run([sys.executable, str(script), *arguments.rest], check=False).returncode


def _models(arguments: argparse.Namespace) -> int:
    from cotkit.chat import model_path, models_table, pull_model

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if arguments.verb == "list":
        for model in models_table():
            where = model["path"] or "not on this machine"
            print(
                f"{model['name']:<20} {model['size_bytes'] / 1e6:>6,.0f} MB  {model['licence']:<11} {where}"
            )
            print(f"{'':<20} {model['good_for']}")
    elif arguments.verb == "pull":
        print(pull_model(arguments.name, say=say))
    else:
        print(model_path(arguments.name, fetch=False, say=say))
    return 0


def _strip(arguments: argparse.Namespace) -> int:
    from cotkit.report import all_notebooks, strip_file

    paths = [pathlib.Path(path) for path in arguments.paths] or all_notebooks()
    changed = [path for path in paths if strip_file(path, check=arguments.check)]
    for path in changed:
        print(f"{path}: {'holds outputs or metadata (cotkit strip)' if arguments.check else 'stripped'}")
    return 1 if changed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
