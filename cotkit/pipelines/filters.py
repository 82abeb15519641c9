"""What may not be trained towards, beyond what a view leaves out (`cotkit.runs.views`): each drop has a name.

Filters look at the chosen side alone; a rejected trace may be as bad as it is. Two traces that no program
told apart make a pair only when their scores differ by at least twice the judge's measured noise.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from cotkit.runs import Example

# Words to the judge instead of to the reader; measured to move the scores of weak judges.
BEGGING = re.compile(
    r"\b(?:give|assign|award|rate|score)\b[^.\n]{0,40}\b(?:10|ten|full|highest|maximum|top)\b[^.\n]{0,12}"
    r"(?:score|marks?|points?|/\s*10|rating)"
    r"|\b(?:very\s+|highly\s+)?(?:concise|accurate|excellent|perfect|flawless)\s+(?:and\s+\w+\s+)?"
    r"(?:answer|solution|response)\b"
    r"|\bas\s+(?:an?\s+)?(?:ai\s+)?(?:judge|grader|critic|evaluator)\b|ignore\s+(?:all\s+)?(?:the\s+)?previous",
    re.IGNORECASE,
)
_SCRIPT_LETTERS = 200  # letters that are looked at


@dataclass(frozen=True)
class Filters:
    """`max_chars`: of a chosen trace. `require_boxed`: an answer without \\boxed{} teaches the wrong form.
    `noise`: standard deviation of the judge's scores on one trace, on 0..1."""

    min_chars: int = 1
    max_chars: int = 8000
    require_boxed: bool = False
    noise: float = 0.0

    def describe(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if name != "noise"}

    def fault(self, example: Example) -> str | None:
        """Why this example is not trained on; None = it is."""
        if example.label is False:  # KTO's bad answers
            return None
        chosen, rejected = example.candidate, example.rejected
        length = len(chosen.trace)
        faults = {
            "below_threshold": not chosen.accepted,
            "too_short": length < self.min_chars,
            "too_long": length > self.max_chars,
            "finish_reason": chosen.call.get("finish_reason") not in (None, "stop"),
            "other_language": _other_script(example.row.problem, chosen.text),
            "speaks_to_judge": bool(BEGGING.search(chosen.text)),
            "gap_below_noise": rejected is not None and _gap_is_noise(example, self.noise),
        }
        return next((name for name, holds in faults.items() if holds), None)


def _gap_is_noise(example: Example, noise: float) -> bool:
    """Scores decide a pair only where verdicts do not, and only beyond twice their noise."""
    chosen, rejected = example.candidate, example.rejected
    if (chosen.verdict.correct, rejected.verdict.correct) == (True, False):
        return False
    return chosen.judgement.mean - rejected.judgement.mean < 2 * noise - 1e-9


def _other_script(problem: str, answer: str) -> bool:
    """The answer is written in another script than the problem (Latin, CJK, Cyrillic ...)."""
    asked, given = _script(problem), _script(answer)
    return None not in (asked, given) and asked != given


def _script(text: str) -> str | None:
    letters = [c for c in text if c.isalpha()][:_SCRIPT_LETTERS]
    names = Counter(unicodedata.name(c, "?").split()[0] for c in letters)
    return names.most_common(1)[0][0] if len(letters) >= 8 else None


def apply_filters(
    examples: Sequence[Example], filters: Filters, cap: int | None = None
) -> tuple[list[Example], Counter[str]]:
    """(kept, {reason: dropped}); `cap` examples a problem at most, repeated examples once."""
    kept, drops = [], Counter()
    seen: set[tuple] = set()
    per_problem: Counter[str] = Counter()
    for example in examples:
        key = example_key(example)
        reason = filters.fault(example)
        if reason is None and key in seen:
            reason = "duplicate"
        if reason is None and cap is not None and per_problem[example.row.id] >= cap:
            reason = "over_cap"
        if reason:
            drops[reason] += 1
            continue
        seen.add(key)
        per_problem[example.row.id] += 1
        kept.append(example)
    return kept, drops


def example_key(example: Example) -> tuple:
    """What makes two examples the same one."""
    sides = (example.candidate, example.rejected)
    return (example.row.problem, *(" ".join(c.trace.split()) if c else None for c in sides), example.label)
