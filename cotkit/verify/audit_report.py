"""What an audit finds: the kinds of findings in words, the report, and its table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

KINDS = {
    "wrong": "the program prints another answer than the reference",
    "undecided": "no program can tell whether the printed answer is the reference",
    "non_deterministic": "two runs on one day print different answers",
    "date_dependent": "another day, another answer (where it could not run: the source asks for today)",
    "multi_answer": "the program prints several lines or boxes and marks none as the answer",
    "no_output": "the program prints nothing",
    "crashed": "the program fails, or prints without end",
    "timeout": "the program does not end in time",
    "no_reference": "there is no reference",
    "unparseable_reference": "the checker cannot tell a wrong answer from the reference",
    "reference_not_equal_to_itself": "the reference, given as an answer, is not accepted",
    "unknown_answer_type": "the answer type is none that the checker knows",
    "check_refuses_reference": "the problem's check program does not accept the reference",
    "check_accepts_anything": "the problem's check program accepts every answer",
    "broken_check": "the problem's check program cannot decide on an answer",
    "tests_fail_solution": "the solution does not pass the problem's tests",
    "tests_accept_anything": "a program that does nothing passes the problem's tests",
    "broken_tests": "the problem's tests cannot decide on a program",
    "absurd_tolerance": "the tolerance accepts wrong answers, or means nothing for this type",
    "duplicate": "rows that repeat the text or the id of another",
    "unreadable": "the file holds no problems that can be loaded",
}
APART = {
    "missing_library": "the program needs a library that is not installed here",
    "not_run": "the program could not be started",
    "asks_for_today": "the program asks for today's date, with no effect on its answer",
}
NOT_RUN = ("missing_library", "not_run")

MARKDOWN = re.compile(r"[\\|*_`$<]")  # signs that would not show as themselves


@dataclass(frozen=True)
class Finding:
    """One thing found about one problem; `kind` is a key of `KINDS` or `APART`."""

    id: str
    kind: str
    detail: str


@dataclass(frozen=True)
class AuditReport:
    """`problems` audited, `programs` among them, `ran` of those that could be run here."""

    problems: int = 0
    programs: int = 0
    ran: int = 0
    findings: tuple[Finding, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def clean(self) -> bool:
        """Every program ran and nothing was found."""
        return self.ran == self.programs and not any(self.counts[kind] for kind in KINDS)

    @property
    def counts(self) -> Counter[str]:
        return Counter(finding.kind for finding in self.findings)

    def of(self, kind: str) -> list[Finding]:
        """The findings of one kind."""
        if kind not in KINDS | APART:
            raise ValueError(f"no kind of finding {kind!r}; there are: {', '.join(KINDS | APART)}")
        return [finding for finding in self.findings if finding.kind == kind]

    def as_dict(self) -> dict[str, Any]:
        return {"clean": self.clean, **asdict(self), "counts": dict(self.counts)}

    def summary(self) -> str:
        """One line: what was audited and what was found."""
        found = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        ran = f"{self.ran} of {self.programs} programs ran" if self.programs else "no programs"
        return f"{self.problems} problems, {ran}: {found or 'nothing found'}"

    def _repr_markdown_(self) -> str:
        cells = [(_cell(f.id), f.kind, _cell(f.detail)) for f in self.findings]
        rows = ["", "| id | found | detail |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in cells)]
        return "\n".join([f"**{self.summary()}**", *(rows if cells else [])])


def _cell(text: str) -> str:
    """As it stands, in one line of a Markdown table."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def findings_table(reports: Sequence[tuple[str, AuditReport]]) -> str:
    """Counts by file, each finding on a line of its own, what the kinds mean, a summary."""
    total = merge(report for _, report in reports)
    kinds = [kind for kind in KINDS | APART if total.counts[kind]]
    columns = ["problems", "ran", *kinds]
    width = max(len(name) for name, _ in [*reports, ("total", None)])
    lines = [" ".join([f"{'file':<{width}}", *(f"{name:>6}" for name in columns)])]
    for name, report in [*reports, ("total", total)]:
        numbers = [report.problems, report.ran, *(report.counts[kind] for kind in kinds)]
        cells = [f"{n or '.':>{max(len(c), 6)}}" for n, c in zip(numbers, columns, strict=True)]
        lines.append(" ".join([f"{name:<{width}}", *cells]))
    lines += [f"{name}  {line}" for name, report in reports for line in _finding_lines(report)]
    lines += [f"{kind}: {(KINDS | APART)[kind]}" for kind in kinds]
    return "\n".join([*lines, total.summary()])


def _finding_lines(report: AuditReport) -> Iterator[str]:
    """One line a finding; programs that miss the same library share one."""
    for finding in report.findings:
        if finding.kind not in NOT_RUN:
            yield f"{finding.id or '-'}  {finding.kind}: {finding.detail}"
    not_run = Counter(
        (finding.kind, finding.detail) for finding in report.findings if finding.kind in NOT_RUN
    )
    for (kind, detail), count in not_run.items():
        yield f"{count} programs  {kind}: {detail}"


def merge(reports: Iterable[AuditReport]) -> AuditReport:
    """Several reports as one."""
    total = AuditReport()
    for report in reports:
        total = AuditReport(
            total.problems + report.problems,
            total.programs + report.programs,
            total.ran + report.ran,
            total.findings + report.findings,
            total.seconds + report.seconds,
        )
    return total
