"""From a model's words to a question: what is taken off around it, and why a text is none.

Nothing is judged here but the form. `read_question` peels the markup that models put round a question and
changes nothing in it: a corrupted question would pass all later steps, since they see no other. What may be
content stays. `fault_of` holds the rules of form of Self-Instruct (Wang et al. 2022, section 2.2, and its
code: length, keywords, first character) and of Evol-Instruct's elimination (Xu et al. 2023, section 3.2:
words of the prompt, nothing but stop words, an apology). What the seeds themselves do is refused by no rule
that the user has not given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cotkit.pipelines.novelty import is_number, words_of

GATES: dict[str, Any] = {
    "min_words": 6,
    "max_words": 250,
    "keywords": (),  # whole words that a question must not have
    "starts": (),  # regular expressions, for any case, that it must not begin with
    "near": 0.7,  # of Novelty: share of word triples that makes a near-duplicate
    "rouge_l": None,  # of Novelty: None = not looked at
    "new_words": 3,  # that a rewriting must add to its parent, numbers not counted
    "rules": ("apology", "prompt_words"),  # it is none, and has no words of the prompt
}
ORIGINAL = {  # Self-Instruct's, its lengths but for "<= 3 words", which no question with numbers meets
    "max_words": 150,
    "keywords": ("image", "images", "graph", "graphs", "picture", "pictures", "file", "files", "map", "maps",
                 "draw", "plot", "go to"),
    "starts": ("write a program", "[!-/:-@[-`{-~]", "[^\\x00-\\x7f]"),  # punctuation; no ASCII
    "rouge_l": 0.7,
}  # fmt: skip

_LABEL = re.compile(
    r"[\s*_#>]{0,4}(?:(?:(?:sure|certainly|okay)\W{1,3})?here(?: is|'s)[^\n:]{0,60}"
    r"\b(?:problem|question|task|version|rewriting|continuation|one)\b[^\n:]{0,40}:"
    r"|(?:new |rewritten |next )?(?:problem|question|task)(?: statement)?\s{0,2}#?\d*(?: ?\([^()\n]{0,20}\))?"
    r"[*_]{0,3}(?:[ \t]?[:.)](?!\d)|(?=\n))|\d{1,2}[.)](?=\s+\D)|<think>(?s:.*?)</think>)[\s*_]{0,4}",
    re.IGNORECASE,
)
_LIST = re.compile(r"1([.)])\s(?s:.*)\n[ \t]*2\1")  # parts of one question, or several questions
_AFTER = re.compile(  # labels and first words of a solution, and another problem
    r"\n\W{0,4}(?:(?:new |next )?(?:problem|question)\s{0,2}#?\d*\s{0,2}[:.)]"
    r"|(?:the )?(?:final |correct )?answer(?: is)?\W{0,3}:"
    r"(?!\W*(?:round|give|use|express|as\b|in\b|to\b|with\b))"
    r"|(?:the )?(?:final |correct )?answer is\W{0,4}\d|(?:solution|explanation|reasoning)(?: steps?)?\W{0,3}:"
    r"|let's (?:solve|find|compute|calculate|think|break|start|see|denote|work)\b"
    r"|to (?:solve|find|determine)\b[^\n.]{0,60}\b(?:we|you|i|first|let)\b"
    r"|</(?:problem|question|answer|output)>)"
    r"|\n[ \t]*-{3,}\s*\Z",
    re.IGNORECASE,
)
_RULE = re.compile(r"\n[ \t]*-{3,}\Z")
_WRAPPED = re.compile(
    r"""\"([^"]*)"|“([^“”]*)”|`([^`]*)`|<(?:problem|question)>((?s:.*))</(?:problem|question)>""",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"(?<![\w)\]*])\*\*(?=\S)([^*\n]+)(?<=\S)\*\*(?![\w(*])")  # words, and no power
_ASKS = re.compile(
    r"[?？]|(?:^|[.!\n]\s{0,4})(?:how|what|which)\b"
    r"|(?:^|[.;:,!)\n]\s{0,4}|\b(?:and|then|please) )(?:find|compute|convert|calculate|determine"
    r"|evaluate|give|state|list|solve|simplify|name|count|estimate|express|write|report|return|print"
    r"|output|say|derive|prove|show"
    r"|minimi[sz]e|maximi[sz]e|pick|choose|identify|decide|work out|tell)\b",
    re.IGNORECASE,
)
_CODE_BLOCK = re.compile(r"^[ \t]*```", re.MULTILINE)
_PROMPT_WORDS = re.compile(
    r"\b(?:(?:given|rewritten|original|above|previous|seed|evolved) (?:problem|question|prompt)"
    r"|new (?:problem|prompt)\b|(?:rewrite|evolve) (?:the|this)\b)",
    re.IGNORECASE,
)
_APOLOGY = re.compile(
    r"\b(?:i'?m |am )?sorry\b|\bas an ai\b|\bi (?:can ?not|can't|am unable)\b"
    r"|\b(?:not enough|insufficient|missing) information\b"
    r"|\bcannot be (?:determined|answered|solved|computed)\b",
    re.IGNORECASE,
)
_STOP_WORDS = re.compile(
    r"(?:a|an|the|is|are|was|of|to|in|and|or|it|this|that|what|which|who|how|be|do|does)(?: |$)"
)
_APOLOGY_WORDS = 80  # an apology is a short text (Evol-Instruct's own limit)


def read_question(text: str) -> str:
    """The question in a reply, without label, emphasis and what follows it; "" when there is none."""
    text, begin = text.strip(), 0
    while (match := _LABEL.match(text, begin)) and match.end() > begin and not _LIST.match(text, begin):
        begin = match.end()
    text = text[begin:].strip()
    if wrapped := _WRAPPED.fullmatch(text):
        text = next(part for part in wrapped.groups() if part is not None).strip()
    if (asks := _ASKS.search(text)) and (after := _AFTER.search(text, asks.end())):
        text = _RULE.sub("", text[: after.start()].rstrip())
    return _EMPHASIS.sub(r"\1", text).strip()


def situation_of(question: str) -> str:
    """What stands before its last sentence, if that one and only that one asks for something; else ""."""
    before, _, last = re.sub(r"(?<=[.!?])\s+(?=\S)", "\0", question.strip()).rpartition("\0")
    asks = _ASKS.search(last) and not _ASKS.search(before) and len(last.split()) > 3
    return before.replace("\0", " ") if asks else ""


def apologises(text: str) -> bool:
    return len(text.split()) <= _APOLOGY_WORDS and bool(_APOLOGY.search(text))


def fault_of(question: str, gates: dict[str, Any], sources: Sequence[str]) -> tuple[str, str] | None:
    """(drop_reason, detail) of a text that is no question; `sources`: the questions it was made from."""
    words = words_of(question)
    if "apology" in gates["rules"] and apologises(question):
        return "unparsed", "an apology instead of a question"
    if not _STOP_WORDS.sub("", " ".join(words)):
        return "unparsed", "nothing but stop words" if words else "the reply holds no question"
    if "prompt_words" in gates["rules"] and (found := _PROMPT_WORDS.search(question)):
        return "copied", f"words of the prompt: {found[0]!r}"
    count = length_of(question)
    if not gates["min_words"] <= count <= gates["max_words"]:
        return "length", f"{count} words, not {gates['min_words']} to {gates['max_words']}"
    if found := next((word for word in gates["keywords"] if has_word(question, word)), None):
        return "keyword", f"it has the word {found!r}"
    if found := next((start for start in gates["starts"] if begins(question, start)), None):
        return "start", f"it begins as {found!r} does"
    if _CODE_BLOCK.search(question) and not any(map(_CODE_BLOCK.search, sources)):
        return "unparsed", "it holds a block of code, unlike every problem it was made from"
    if not _ASKS.search(question) and all(map(_ASKS.search, sources)):
        return "unparsed", "it asks nothing"
    if not any(map(is_number, words)) and all(any(map(is_number, words_of(s))) for s in sources):
        return "unanswerable", "it has no number, unlike every problem it was made from"
    return None


def has_word(question: str, word: str) -> bool:
    """`word`, in lower case, stands in it as a whole; it may be several ("go to")."""
    return re.search(rf"\b{re.escape(word)}\b", " ".join(words_of(question))) is not None


def gain(question: str, parent: str) -> int:
    """How many words of a rewriting, numbers not counted, are not in its parent."""
    known = set(words_of(parent))
    return sum(not is_number(word) and word not in known for word in words_of(question))


def begins(question: str, start: str) -> bool:
    return re.match(start, question, re.IGNORECASE) is not None


def breaks(question: str, rule: str) -> bool:
    return apologises(question) if rule == "apology" else _PROMPT_WORDS.search(question) is not None


def length_of(question: str) -> int:
    """Its words; of a script without spaces, its characters."""
    return max(len(question.split()), sum(word[0] > "\u3040" for word in words_of(question)))


def check_gates(
    given: dict[str, Any] | None, strategy: str, seeds: Sequence[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The gates of a strategy with the user's changes, and notes on what was taken back because of the seeds.

    Raises ValueError for what cannot work.
    """
    given = given or {}
    gates = GATES | (ORIGINAL if strategy == "self_instruct" else {}) | given
    if unknown := sorted(gates.keys() - GATES.keys()):
        raise ValueError(f"gates: unknown {unknown}; known: {', '.join(GATES)}")
    for name in ("near", "rouge_l"):
        if not ((gates[name] is None and name == "rouge_l") or 0 < (gates[name] or 0) <= 1):
            raise ValueError(f"gates: {name} must be above 0 and at most 1, got {gates[name]!r}")
    whole = [gates[name] for name in ("min_words", "max_words", "new_words")]
    if not all(isinstance(n, int) and n >= 0 for n in whole) or whole[0] > whole[1]:
        raise ValueError(
            f"gates: min_words, max_words and new_words must be whole numbers in order, got {whole}"
        )
    for name in ("keywords", "starts", "rules"):
        if isinstance(gates[name], str):
            raise ValueError(f"gates: {name} must be a list")
    if unknown := sorted(set(gates["rules"]) - set(GATES["rules"])):
        raise ValueError(f"gates: unknown rules {unknown}; known: {', '.join(GATES['rules'])}")
    try:
        list(map(re.compile, gates["starts"]))
    except re.error as error:
        raise ValueError(f"gates: starts: {error.pattern!r} is no regular expression: {error}") from None
    gates["keywords"] = sorted(word.casefold() for word in gates["keywords"])
    notes = []
    for name, held_by in (("keywords", has_word), ("starts", begins), ("rules", breaks)):
        held = {rule: sum(held_by(seed, rule) for seed in seeds) for rule in gates[name]}
        if name not in given:
            gates[name] = [rule for rule, count in held.items() if not count]
            notes += [f"{name}: {rule!r} refuses nothing, {n} seeds have it" for rule, n in held.items() if n]
    for name, outermost in (("min_words", min), ("max_words", max)):
        seen = outermost([gates[name], *map(length_of, seeds)])
        if name not in given and seen != gates[name]:
            gates[name] = seen
            notes.append(f"{name} is {seen}, as a seed has so many")
    return gates, notes
