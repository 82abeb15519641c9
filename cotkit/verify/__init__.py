"""Checking an answer by program: extraction, the typed ladder, the symbolic stage in killable processes.

`extract` (extraction.py) finds the answer in a completion, `check_answer` (check.py) compares it with the
reference: the stages are in ladder.py, the decisions of taste in policy.py, the processes in workers.py.
`audit` checks references and the programs that compute them before a run (audit.py).
docs/verification.md explains all of it.
"""

from cotkit.records import Extraction, Verdict
from cotkit.verify.audit import audit, audit_files
from cotkit.verify.audit_report import AuditReport, Finding, findings_table
from cotkit.verify.check import acheck_answer, check_answer
from cotkit.verify.extraction import extract, extract_answer, reference_answer
from cotkit.verify.policy import ANSWER_TYPES, AnswerPolicy

__all__ = [
    "ANSWER_TYPES",
    "AnswerPolicy",
    "AuditReport",
    "Extraction",
    "Finding",
    "Verdict",
    "acheck_answer",
    "audit",
    "audit_files",
    "check_answer",
    "extract",
    "extract_answer",
    "findings_table",
    "reference_answer",
]
