r"""Finding the final answer in a completion.

`extract` tries the markers below in order and says which one it used (`how`); the first that is present
ends the search, even when it holds nothing, so that a truncated box never falls back on a weaker marker.

    answer_tag   <answer>...</answer>, the last one; in it a box or a phrase, else its text
    box          the last \boxed{...} or \fbox{...}, balanced, innermost; boxes joined by "and" are a list
    hashes       #### 72 (GSM8K)
    phrase       "the final answer is 72", "Answer: 72", "答案是72", a line "Final answer" above the answer
    answer_line  A: 72 at the start of a line (GSM8K's model solutions)
    bare         the whole text is one number, quantity, option letter, yes or no
    last_number  only on request: what follows the last "=", else the last number
    pattern      the last match of the caller's own regex, instead of all of the above

`answer` is None with how = none, empty, thinking_not_finished, unclosed_box, empty_box, unclosed_answer_tag
or empty_answer_tag. Only the text after the last `</think>` counts, and nothing in a fenced code block does.
Every rule is linear in the length of the text.
"""

from __future__ import annotations

import re

from cotkit.records import Extraction
from cotkit.verify.normalise import is_closed
from cotkit.verify.quantities import is_plain_value
from cotkit.verify.words import is_prose, takes_back

CAMEL_BOX = {r"\\boxed{(.*?)}", r"\\boxed\{(.*?)\}"}  # CAMEL's default pattern: meant as "the box"
LONGEST_PHRASE = 2000  # characters of an answer that stands in a sentence
DEEPEST_BOX = 20  # boxes inside boxes

THINK_END = re.compile(r"(?<!`)</think(?:ing)?>(?!`)", re.I)
THINK_START = re.compile(r"(?<!`)<think(?:ing)?>(?!`)", re.I)
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)")
MATH_FENCES = {"math", "latex", "tex"}  # shown as a formula, not as a program

ANSWER_TAG = re.compile(r"<(/?)(?:final_?)?answer(?:\s[^<>]{0,99})?>", re.I)
FINAL_CHANNEL = "<|channel|>final<|message|>"  # of gpt-oss, where no server has taken it off
DENIED_BOX = re.compile(r"\b(?:answer|result)\b[^\n.]{0,9}\b(?:is|was) not[\s$(\[\\*]*\Z", re.I)
BRACE = re.compile(r"\\.|\{|\}", re.S)  # each begins with a letter of its own: `re` skips to the next of them
BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s{0,3}")
BARE_BOX = re.compile(r"\\[A-Za-z]+\d*|[\w.+-]+")
BETWEEN_BOXES = re.compile(r"\\(?:text|mathrm|mbox|quad|qquad|[()\[\],; ])|[\s{}$~]")
BOX_JOINERS = {",", ";", "and", "or", ",and", ",or", ";and", ";or"}
LEAD_IN = re.compile(
    r"^(?:\\(?:text|mathrm|textbf)\s?\{)?\s*(?:the\s+)?(?:final\s+|correct\s+)?answer"
    r"(?:\s+is(?:\s*:)?|\s*:)\s*(\})?",
    re.I,
)
PLACEHOLDER = re.compile(r"(?:\\(?:text|mathrm|ldots|dots|square|quad|[ ,;:!])|[\s{}$?~_.…])*")

HASHES = re.compile(r"(?<!#)####(?!#)[ \t]*([^\n]*)")
HEADING_WORD = re.compile(
    r"(?:\*\*)?(?:step|part|case|problem|solution|method|(?:the\s)?(?:final\s)?answer)\b", re.I
)

SAYS = (
    r"(?:[ \t]{1,3}(?:is|are|was|equals|should\sbe|must\sbe|would\sbe|will\sbe)\b(?:[ \t]{0,2}[:：])?"
    r"|[ \t]{0,3}(?:[:：=]|是|为)|(?<=选)(?=[A-J]))"
)
BOLD = r"(?:\*\*|__)?"
ABOUT = r"(?:[ \t]to[ \t](?:the|this)[ \t](?:question|problem))?"
NAMED = (
    r"(?<![A-Za-z])(?:(?:final|correct)[ \t]{1,3}(?:option|choice|result)|answers?)|最终答案|答案|故选|应选"
)
ANSWER_PHRASE = re.compile(rf"(?:{NAMED}){ABOUT}{BOLD}{SAYS}", re.I)
PHRASE_WORDS = ("answer", "option", "choice", "result", "答案", "选")  # one of them stands in every phrase
RESULT_PHRASE = re.compile(rf"(?<![A-Za-z])result{BOLD}{SAYS}", re.I)
ANSWER_HEADING = re.compile(
    rf"^[ \t]{{0,3}}(?:#{{1,6}}[ \t]{{0,3}})?{BOLD}(?:the[ \t])?(?:final[ \t])?answer{BOLD}[:：]?{BOLD}"
    r"[ \t]{0,9}$",
    re.I | re.M,
)
DENIED_BEFORE = re.compile(
    r"(?:\bnot|\bnever|n't|[.!?:\n]\s*(?:now,? |let us |let's )?(?:suppose|assume|if)(?:[ \t]+that)?)"
    r"[ \t]+"
    r"(?:the|an?|my|our)?[ \t]*(?:final|correct)?[ \t]*$",
    re.I,
)
DENIED_AFTER = re.compile(r"[\s*:]{0,9}(?:wrong|incorrect|not|false\s+because)\b", re.I)
REMARK = re.compile(  # what is said about an answer, and is none where one was given before
    r"[\s*]{0,9}(?:(?:therefore|indeed|thus|also)[ \t])?(?:"
    r"(?:correct|right|reasonable|consistent|verified|confirmed|valid|plausible|sensible|accurate|as follows"
    r"|expected|given (?:by|in) (?!\d)\w+)(?:[\s*]*(?:$|[\n.!,;:])|[ \t](?:with|because|since|and|for|as)\b)"
    r"|(?-i:in (?:the )?[a-z]{3,}(?: [a-z]+){0,3})\**[.!]?\)?\s*(?:\n|$)"
    r"|(?:rounded|obtained|found|derived|simplified|computed|calculated|expressed|final|helpful|too [a-z]+)\b"
    r"(?!(?:[ \t]+(?:to be|to|as|at))?[\s:=]*[-$\\(]{0,2}\d(?!\d? (?:decimal|significant|digit|place)))"
    r"(?![^\n.]{0,80}[:=]\s*[-$\\(]{0,2}\d))",  # found to be 42, rounded to two decimals: 3.14
    re.I,
)
OF_A_NUMBER = re.compile(
    r"[\s*]{0,9}(?:positive|negative|unique|exact|an? (?:\w+ )?(?:integer|number))\b(?!\s*[-+$\d])", re.I
)
OF_OTHERS = re.compile(
    r"(?:['’]s|s['’]|\b(?:given|proposed|claimed|suggested|his|her|their))[ \t]+(?:\w+[ \t]+)?$", re.I
)
LIST_MARK = re.compile(r"[ \t]*\n\s*(?:[-*+>]|\d{1,2}[.)])[ \t]+(?=\S)")
HEDGE_WORDS = re.compile(
    r"^(?:[\s*_:：,]|(?:thus|therefore|then|simply|just|approximately|about|roughly|equal to)\b"
    r"|(?:found|computed|calculated|determined|given|expressed)[ \t]+(?:to be|as|by)"
    r"(?=[ \t]+[-$\\(]{0,2}\d))+",
    re.I,
)
BOLD_TEXT = re.compile(r"\*\*([^*\n]+)\*\*")
OPTION_WITH_TEXT = re.compile(r"^(?:\(([A-Ja-h])\)|([A-H][.):：]|[IJ][):：])(?=\s)(?!\s[A-Z]\.))")
ABBREVIATED = (  # each group of one length, as a look-behind must be
    r"(?<!\b(?:Mr|Ms|Dr|vs|ca))(?<!\b(?:Mrs|i\.e|e\.g|U\.S))(?<!\bapprox)"
    r"(?<!\b(?:St|Mt|Lt|sq))(?<!\b(?:Gen|Sgt|Sen))(?<!\bProf)(?<!\b(?-i:[A-Z])(?=\. (?-i:[A-Z])\.))"
    r"(?<!\b(?:No|ft|hr|lb|oz|yd)(?=\. ?\d))(?<!\bhrs(?=\. ?\d))"
    r"(?<!\b(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(?=\. ?\d))(?<!\bSept(?=\. ?\d))"
)
THAT_IS = re.compile(r",? \(?i\.e\.,? ", re.I)
ANSWER_ENDS = re.compile(
    rf"\n|{ABBREVIATED}[.](?=\s|$|\*)|[。?！？](?=\s|$|\*)|!(?=\s|$|\*)(?!\s*[-+*/=×÷·^<>≈≤≥])|[;；]\s*[A-Za-z]{{2}}"
    r"|,? \(?(?:because|since|which)\b|, (?:not|so|as|where|and not|and (?:this|the) answer)\b|[.\s]I hope\b",
    re.I,
)
OR_OPTION = re.compile(r"\s+or (?:maybe |perhaps |possibly )?\(?[A-J]\)?\s*(?:[.?!\n]|\Z)", re.I)
OR_ANOTHER = re.compile(
    r"[.;]\s+((?i:or) (?:maybe |perhaps |possibly )?[-+$\\(]{0,3}(?:\d[\d.,/]*\d|\d|[A-J])\)?)"
    r"\$?\s*(?:[.?!]?\s*\Z|[.?!]?\s*\n)"
)
INLINE_MATH = re.compile(r"\$\$([^$]+)\$\$|\$([^$\n]*[^$\s])\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.S)
ANSWER_LINE = re.compile(r"^[ \t]{0,3}A:[ \t]*(\S[^\n]*)$", re.M)
OPTION_LINE = re.compile(r"^[ \t]{0,3}B:", re.M)
PLAIN_NUMBER = re.compile(  # what needs no closer look, and most answers are
    r"[-+]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][-+]?\d{1,2}|/[1-9]\d*|%)?"
)
NUMBER = re.compile(r"-?(?:\$\s?)?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?")


def extract(
    text: str | None, pattern: str | re.Pattern | None = None, last_number: bool = False
) -> Extraction:
    """The final answer of a completion and the marker it stood in; never raises on any text.

    `pattern`: a regex with one group that replaces the markers; its LAST match counts. CAMEL's default
    `\\\\boxed{(.*?)}` is read as what it means, the box with balanced braces.
    `last_number`: where no marker is found, take what follows the last "=", else the last number.
    Raises ValueError for a pattern that is no regex or has not one group.
    """
    pattern = compiled(pattern)
    if not text or not text.strip():
        return Extraction(answer=None, how="empty")
    visible = after_thinking(text)
    if pattern is not None and pattern.pattern not in CAMEL_BOX:
        return by_pattern(visible, pattern)
    visible = without_code(visible)
    if "<" in visible and THINK_START.search(visible):
        return Extraction(answer=None, how="thinking_not_finished")
    if pattern is not None:
        return in_box(visible) or Extraction(answer=None, how="none")
    for rule in RULES:
        if (found := rule(visible)) is not None:
            return found
    return (in_last_number(visible) if last_number else None) or Extraction(answer=None, how="none")


def extract_answer(text: str | None) -> str | None:
    """The final answer of a completion, None where it gives none. `extract` also says where it stood."""
    return extract(text).answer


def reference_answer(reference: str | None, pattern: str | re.Pattern | None = None) -> str | None:
    r"""The gold answer inside a reference.

    A plain answer ("72", "x = 5", "[(1, 3)]") is itself. A worked solution, which is one that has several
    lines or a marker, is extracted: "... #### 72", "... \boxed{7}", "... A: 18", "So the answer is 5".
    None: an empty reference, or a worked solution that names no answer.
    """
    if reference is None or not reference.strip():
        return None
    plain = reference.strip()
    if pattern is None and (PLAIN_NUMBER.fullmatch(plain) or is_closed(plain)):
        return plain
    found = extract(reference, pattern)
    if found.how == "none" and pattern is not None:
        return reference_answer(reference)
    visible = after_thinking(reference)
    if found.how in ("none", "bare") and is_one_value(visible):
        return visible or None
    return found.answer


def is_one_value(reference: str) -> bool:
    r"""One line, or the several lines of one Python literal or LaTeX environment."""
    return "\n" not in reference or reference.startswith(
        ("[", "{", "(", "\\begin{", "$\\begin{", "$$", "\\[", "array(", "np.array(", "Matrix(", "tensor(")
    )


def compiled(pattern: str | re.Pattern | None) -> re.Pattern | None:
    if pattern is None:
        return None
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if text in CAMEL_BOX:
        return re.compile(r"\\boxed\{(.*?)\}")
    try:
        regex = re.compile(pattern, re.S) if isinstance(pattern, str) else pattern
    except re.error as error:
        raise ValueError(f"the answer pattern {text!r} is no regular expression: {error}") from None
    if regex.groups != 1:
        raise ValueError(
            f"the answer pattern {text!r} has {regex.groups} groups; it needs exactly one, round the answer"
        )
    return regex


def after_thinking(text: str) -> str:
    """What follows the last `</think>`."""
    end = 0
    for match in THINK_END.finditer(text) if "</" in text else ():
        end = match.end()
    return text[end:].rpartition(FINAL_CHANNEL)[2].strip()


def by_pattern(text: str, pattern: re.Pattern) -> Extraction:
    answer = None
    for match in pattern.finditer(text):
        answer = match[1]
    answer = answer.strip() if answer else None
    return Extraction(answer=answer or None, how="pattern" if answer else "none")


def without_code(text: str) -> str:
    """The text without its fenced code blocks; a fence that never closes hides the rest."""
    if "```" not in text and "~~~" not in text:
        return text
    kept, fence, show = [], "", False
    for line in text.split("\n"):
        match = FENCE.match(line)
        if not fence and match:
            fence, show = match[1], match[2].lower() in MATH_FENCES
        elif fence and match and match[1].startswith(fence) and not match[2]:
            fence = ""
        elif not fence or show:
            kept.append(line)
    return "\n".join(kept)


def in_answer_tag(text: str) -> Extraction | None:
    start, content = None, None
    for tag in ANSWER_TAG.finditer(text) if "<" in text else ():
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            start, content = None, text[start : tag.start()]
    if start is not None:
        return Extraction(answer=None, how="unclosed_answer_tag")
    if content is None:
        return None
    inner = in_box(content) or in_phrase(content)
    answer = inner.answer if inner else content.strip()
    return Extraction(answer=answer or None, how="answer_tag" if answer else "empty_answer_tag")


def in_box(text: str) -> Extraction | None:
    for _ in range(DEEPEST_BOX):
        group = last_boxes(text)
        if not group:
            return None
        if None in group:
            return Extraction(answer=None, how="unclosed_box")
        text = ", ".join(dict.fromkeys(content.strip() for content in group))
        if not BOX.search(text):
            break
    lead = LEAD_IN.match(text)
    if lead:  # \text{The answer is }7, \text{The answer is 7}
        rest = text[lead.end() :]
        text = rest if lead[1] or "{" not in lead[0] else rest.rstrip().removesuffix("}")
    if PLACEHOLDER.fullmatch(text):
        return Extraction(answer=None, how="empty_box")
    return Extraction(answer=text.strip(), how="box")


def last_boxes(text: str) -> list[str | None]:
    """The contents of the last box and of those joined to it; None = a box that never closes."""
    boxes = [box for box in top_boxes(text) if not DENIED_BOX.search(text[max(0, box[0] - 40) : box[0]])]
    group = boxes[-1:]
    for before in reversed(boxes[:-1]):
        between = text[before[1] : group[0][0]]
        if len(between) > 60 or BETWEEN_BOXES.sub("", between).lower() not in BOX_JOINERS:
            break
        group.insert(0, before)
    return [content for _, _, content in group]


def top_boxes(text: str) -> list[tuple[int, int, str | None]]:
    """Boxes that stand in no other box, as (start, end, content); content None = never closed."""
    if "boxed" not in text and "fbox" not in text:
        return []
    pairs: dict[int, int] | None = None  # once a brace is open to the end, of the whole text

    def partner(k: int) -> int | None:
        nonlocal pairs
        if pairs is None and (end := closing(text, k)) is not None:
            return end
        pairs = brace_pairs(text) if pairs is None else pairs
        return pairs.get(k)

    found, stop = [], 0
    for match in BOX.finditer(text):
        start, k = match.start(), match.end()
        if start < stop or k >= len(text):
            continue
        if text[k] != "{":  # \boxed 7, \boxed\frac12
            if word := BARE_BOX.match(text, k):
                stop = word.end()
                while word[0][0] == "\\" and text[stop : stop + 1] == "{" and (end := partner(stop)):
                    stop = end + 1
                found.append((start, stop, text[k:stop].rstrip(".")))
        elif end := partner(k):
            stop = end + 1
            found.append((start, stop, text[k + 1 : end]))
        else:
            found.append((start, len(text), None))
    return found


def closing(text: str, k: int) -> int | None:
    """Position of the `}` that closes the `{` at `k`; None = none does."""
    depth = 0
    for match in BRACE.finditer(text, k):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return match.start()
    return None


def brace_pairs(text: str) -> dict[int, int]:
    r"""Position of each closed `{` -> position of its `}`; `\{` and `\}` are no braces."""
    pairs, open_at = {}, []
    for match in BRACE.finditer(text):
        if match[0] == "{":
            open_at.append(match.start())
        elif match[0] == "}" and open_at:
            pairs[open_at.pop()] = match.start()
    return pairs


def in_hashes(text: str) -> Extraction | None:
    matches = list(HASHES.finditer(text)) if "####" in text else []
    for match in reversed(matches[-50:]):
        answer = match[1].strip().strip("*").strip()
        heading = HEADING_WORD.match(answer) or (
            len(answer.split()) > 2 and text[match.end() : match.end() + 2000].strip()
        )
        if answer and not heading:
            return Extraction(answer=answer, how="hashes")
    return None


def in_phrase(text: str) -> Extraction | None:
    folded = text.casefold()
    if not any(word in folded for word in PHRASE_WORDS):
        return None
    remark, of_a_number = "", False
    for phrase in (ANSWER_PHRASE, RESULT_PHRASE):
        matches = list(phrase.finditer(text))
        if phrase is ANSWER_PHRASE:
            matches += ANSWER_HEADING.finditer(text)
            matches.sort(key=lambda match: match.end())
        for match in reversed(matches[-50:]):
            rest = text[match.end() : match.end() + LONGEST_PHRASE]
            before = text[max(0, match.start() - 40) : match.start()]
            before = f"\n{before}" if match.start() <= 40 else before
            if DENIED_BEFORE.search(before) or DENIED_AFTER.match(rest):
                continue
            answer = tidy_phrase(rest)
            said = answer and text[match.end() - 1] not in ":："
            weak = said and OF_A_NUMBER.match(rest) is not None
            if weak or (said and REMARK.match(rest)):
                of_a_number = of_a_number or weak
                remark = remark or answer
            elif answer and of_a_number and not any(map(str.isdigit, answer)):
                break
            elif answer and not (remark and OF_OTHERS.search(before)):
                return Extraction(answer=answer, how="phrase")
    return Extraction(answer=remark, how="phrase") if remark else None


def tidy_phrase(rest: str) -> str:
    """The answer at the start of what follows "the answer is"; "" for a question, which states none."""
    if mark := LIST_MARK.match(rest):  # - 5 under a heading is no minus
        rest = rest[mark.end() :]
    rest = HEDGE_WORDS.sub("", BOLD_TEXT.sub(r"\1", rest, count=1)).lstrip()
    if option := OPTION_WITH_TEXT.match(rest):
        behind = rest[option.end() :]
        if behind.startswith(("?", "？")):
            return ""
        alone = rest[option.end() - 1] == "." or not takes_back(sentence(behind))
        if alone and not OR_OPTION.match(behind):
            return (option[1] or option[2])[0].upper()
    math = INLINE_MATH.match(rest)
    head = next(group for group in math.groups() if group) if math else ""
    rest = rest[math.end() :] if math else rest
    end = ANSWER_ENDS.search(rest)
    if end and end[0] in "?？":
        return ""
    answer = head + (rest[: end.start()] if end else rest)
    if end and (other := OR_ANOTHER.match(rest, end.start())):  # 5; or 6
        answer = head + other.string[: other.end(1)]
    answer, *again = THAT_IS.split(answer)  # 0.75, i.e. 75%
    if again and is_prose(answer) and not is_plain_value(answer):  # the smallest prime, i.e. 2
        answer = next(filter(is_plain_value, (part.rstrip(" )") for part in again)), answer)
    return answer.strip().strip("*_`\"'“”").rstrip(".,:;*_ ")


def sentence(text: str) -> str:
    end = ANSWER_ENDS.search(text)
    return text[: end.start()] if end else text


def in_answer_line(text: str) -> Extraction | None:
    found = ANSWER_LINE.findall(text) if "A:" in text else []
    if not found or OPTION_LINE.search(text):  # a list of options: A: ... B: ...
        return None
    return Extraction(answer=found[-1].strip(), how="answer_line")


def in_bare(text: str) -> Extraction | None:
    text = text.strip()
    plain = len(text) <= 60 and (PLAIN_NUMBER.fullmatch(text) or is_plain_value(text))
    return Extraction(answer=text, how="bare") if plain else None


def in_last_number(text: str) -> Extraction | None:
    tail = text.rstrip()[-LONGEST_PHRASE:]
    after = re.split(r"(?<![<>!=])=(?!=)", tail)
    numbers = NUMBER.findall(after[-1]) or NUMBER.findall(tail)
    if not numbers:
        return None
    answer = numbers[0] if len(after) > 1 and NUMBER.match(after[-1].strip(" $\\(")) else numbers[-1]
    return Extraction(answer=answer.strip(","), how="last_number")


RULES = (in_answer_tag, in_box, in_hashes, in_phrase, in_answer_line, in_bare)
