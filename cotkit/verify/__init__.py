"""Checking an answer by program: extraction, the typed ladder, the symbolic stage in killable processes.

`extract` (extraction.py) finds the answer in a completion, `check_answer` (check.py) compares it with the
reference: the stages are in ladder.py, the decisions of taste in policy.py, the processes in workers.py;
`answer_key` (answer_keys.py) gives all spellings of one answer one key, for counting votes.
docs/verification.md explains all of it.
"""

from cotkit.records import Extraction, Verdict
from cotkit.verify.answer_keys import answer_key
from cotkit.verify.check import acheck_answer, check_answer
from cotkit.verify.extraction import brace_pairs, extract, extract_answer, reference_answer
from cotkit.verify.notation import FONT_COMMANDS, VULGAR
from cotkit.verify.policy import ANSWER_TYPES, AnswerPolicy

__all__ = [
    "ANSWER_TYPES",
    "FONT_COMMANDS",
    "VULGAR",
    "AnswerPolicy",
    "Extraction",
    "Verdict",
    "acheck_answer",
    "answer_key",
    "brace_pairs",
    "check_answer",
    "extract",
    "extract_answer",
    "reference_answer",
]
