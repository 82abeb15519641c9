"""Checking an answer by program: extraction, the typed ladder, the symbolic stage in killable processes.

`extract` (extraction.py) finds the answer in a completion, `check_answer` (check.py) compares it with the
reference: the stages are in ladder.py, the decisions of taste in policy.py, the processes in workers.py;
`answer_key` (answer_keys.py) gives all spellings of one answer one key, for counting votes. `audit` checks
references and the programs that compute them before a run (audit.py). Programs run in the sandbox (sandbox/).
What a pipeline asks for a verdict is a `Verifier` (verifiers.py).
docs/verification.md and docs/sandbox.md explain all of it.
"""

from cotkit.records import Extraction, Verdict
from cotkit.verify.answer_keys import answer_key
from cotkit.verify.audit import DAYS, FLOAT_NOISE, audit, audit_files, read_output
from cotkit.verify.audit_report import AuditReport, Finding, findings_table
from cotkit.verify.check import acheck_answer, check_answer, check_answers
from cotkit.verify.extraction import brace_pairs, extract, extract_answer, reference_answer
from cotkit.verify.notation import FONT_COMMANDS, VULGAR
from cotkit.verify.policy import ANSWER_TYPES, AnswerPolicy
from cotkit.verify.sandbox import (
    Isolation,
    ProgramResult,
    SandboxTooWeak,
    arun_python,
    isolation,
    run_programs,
    run_python,
)
from cotkit.verify.verifiers import (
    AnswerVerifier,
    CheckVerifier,
    TestsVerifier,
    Verifier,
    code_form,
    has_program,
)

__all__ = [
    "ANSWER_TYPES",
    "DAYS",
    "FLOAT_NOISE",
    "FONT_COMMANDS",
    "VULGAR",
    "AnswerPolicy",
    "AnswerVerifier",
    "AuditReport",
    "CheckVerifier",
    "Extraction",
    "Finding",
    "Isolation",
    "ProgramResult",
    "SandboxTooWeak",
    "TestsVerifier",
    "Verdict",
    "Verifier",
    "acheck_answer",
    "answer_key",
    "arun_python",
    "audit",
    "audit_files",
    "brace_pairs",
    "check_answer",
    "check_answers",
    "code_form",
    "extract",
    "extract_answer",
    "findings_table",
    "has_program",
    "isolation",
    "read_output",
    "reference_answer",
    "run_programs",
    "run_python",
]
