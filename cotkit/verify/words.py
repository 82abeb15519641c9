r"""Answers in words: yes and no, option letters, names, phrases, formula text such as `H_2O`.

Words never reach a mathematics parser, which would read "listen" and "silent" as the same product. Case, a
plural s, articles and accents do not count; one more word does, and then the check says it cannot decide.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

from cotkit.verify.normalise import CACHED
from cotkit.verify.numbers import PARTS, SCALES, WORDS, decimal, ratio
from cotkit.verify.verdicts import Outcome, Values

YES = {"yes", "true", "correct", "right", "yeah", "affirmative"}
NO = {"no", "false", "incorrect", "wrong", "nope", "not true", "not correct", "untrue"}
SHORT = {"y": True, "n": False, "t": True, "f": False}  # only where the answer type says yes_no
NO_AS_ARTICLE = re.compile(r"no (?!it\b|this\b|that\b|they\b|he\b|she\b|there\b)", re.I)  # no way
QUALIFIED = re.compile(
    r"\w+(?:[,;:]| -) (?:but|only|except|unless|if|however)\b|\w+\. (?:but|however)\b"
    r"|(?:yes|true|correct|right)[,;:] (?:no|not|false|wrong)\b|(?:no|false|incorrect|wrong)[,;:] yes\b",
    re.I,
)
NONE_OF_IT = {"no solution", "no real solution", "empty set", "null set", "there is no solution"}

OPTION = re.compile(r"(?:\(([A-Ja-h])\)|\[([A-J])\]|([A-H])[.):]?|([IJ])[):]|([a-h])\))")
OPTION_WITH_TEXT = re.compile(  # J. Edgar Hoover is a name
    r"(?:\(([A-Ja-h])\)|([A-Ha-h](?=[).:])|[IJ](?=[):]))[).:](?= ))[:.]? ?(.+)", re.S
)
SPECIES = re.compile(  # E. coli
    r"[A-H]\. (?:coli|difficile|elegans|albicans|botulinum|perfringens|tetani|trachomatis|diphtheriae|jejuni"
    r"|anthracis|cereus|pertussis|burgdorferi|melanogaster|faecalis|histolytica|lamblia|pylori|influenzae|sapiens)"
)
OPTION_NAMED = re.compile(r"(?:the )?(?:correct |right )?(?:option|choice|answer|letter)s?:? (.+)", re.I)
SEVERAL_OPTIONS = re.compile(r"\(?[A-H]\)?(?:(?:,? (?:and|&|or) |[,;/&] ?| )\(?[A-H]\)?)+")
GLUED_OPTIONS = re.compile(r"[A-H]{2,8}")
LONE_OPTION = re.compile(r"(?<![^\W\d_])[A-H](?![^\W\d_])")
IN_A_ROW = re.compile(r"[A-H](?: ?[A-H])+")  # options, or things put in order
OF_OPTIONS = re.compile(  # the text of an option about options: D) both (A) and (B)
    r"\W*(?:both|all|none|neither|either|only|any|options?|choices?|answers?|statements?)\b"
    r"|\(?[A-J]\)?(?:,? (?:and|&|nor|or) |, | ?- ?)"
    r"|.*\b(?:assertion|reason|statements?|(?:is|are) (?:true|false))\b",
    re.I | re.S,
)
OTHER_OPTION = re.compile(  # behind a letter: "or (B)", ", no, B", "5 (B) 6", "B. C. D."
    r"\A[\s,;/&?]*(?:(?i:or|and|no|maybe|perhaps|possibly|wait|it is|it's)[\s,.?!]+)+\(?[A-J]\)?(?![\w'])"
    r"|\A\s*[,;/&?]\s*\(?[A-J]\)?(?![\w'])|\A(?:\(?[A-J](?:[.)][\s,]*|\s+|\Z)){2,}\Z"
    r"|\([A-J]\)|(?<![\w(])[A-J]\)(?=\s|\Z)|(?<!\w)B\. (?=.{1,200}?(?<!\w)C\. )",
)
DENIED_OPTION = re.compile(
    r"\W*(?:is|was|seems|looks) (?:\w+ )?(?:wrong|incorrect|false|untrue"
    r"|not (?:correct|right|true|valid|the))\b"
)
LEFT_OUT = re.compile(  # what follows speaks of the options that were not taken
    r"(?:\A|,? |[(\[])(?:not|rather|instead|over|[Bb]ecause|[Ss]ince|as|whereas|while|unlike|than)\b"
    r"|[;,] ?(?:options? )?\(?[A-J]\)?(?:(?:,| and| or) \(?[A-J]\)?){0,9}"
    r" (?:(?:is|are|being) (?:wrong|incorrect|false|not|too)\b|fails?\b)"
)
LETTER_AND_VALUE = re.compile(r"(?:\(([A-J])\)[.:]? ?|([A-J])[).] (?=[-\d\\$(]))(\S.*)", re.S)

WORD_TEXT = re.compile(r"[^\W\d_](?:[^\W\d_]|['’.,&!?:()/ -])*")
PROSE_WORD = re.compile(
    r"(?<![\\A-Za-z])(?:[A-Za-z]{4,}|(?:and|or|not|no|if|is|the|for|but|of|in|[Mm]ay)(?![A-Za-z])"
    r"|(?<=1)st\b|(?<=2)nd\b|(?<=3)rd\b|(?<=[04-9])th\b|(?<=1[1-3])th\b)"
)
LETTERS = re.compile(r"[^\W\d_]+")
FORMULA_SIGN = re.compile(r"[=+*^<>\\|{}]|(?<=\w)/(?=\w)|\d\(")
FLAG = re.compile(r"([A-Za-z]{3,}\w*)\{[^{}\\,]+\}")  # flag{s0me_text}
FORMULA_TEXT = re.compile(
    r"(?=.*\d)(?=.*[A-Z])(?:\(*[A-Z][a-z]?(?:_?\{?\d+\}?)?(?:\)(?:_?\{?\d+\}?)?)*)+(?:\^?\{?\d?[+-]\}?)?"
)
MATH_WORDS = {
    *re.findall(
        r"\w+",
        "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp sqrt max min gcd lcm"
        " mod det lim abs floor ceil pi oo inf infinity alpha beta gamma delta theta lambda mu sigma omega"
        " phi",
    )
}
ORDINAL = {"st", "nd", "rd", "th"}
NEGATIONS = {*re.findall(r"\S+", "not no never neither nor cannot isnt arent none without non")}
MEANINGS = {word: {Fraction(n)} for word, n in (WORDS | SCALES).items()}
MEANINGS |= {word: {Fraction(n), Fraction(1, n)} for word, n in PARTS.items()}  # a third, the third
MEANINGS |= {f"{word}th": {Fraction(n)} for word, n in WORDS.items() if 13 <= n < 20}
MEANINGS |= {f"{word[:-1]}ieth": {Fraction(n)} for word, n in WORDS.items() if n >= 20}
ONCE = {"first": 1, "once": 1, "second": 2, "twice": 2, "eleventh": 11, "twelfth": 12, "dozen": 12}
MEANINGS |= {word: {Fraction(n)} for word, n in ONCE.items()}
ELEMENTS = "Bh Bi Bk Cf Cn Co Cs Cu Hf Ho Hs In Nb Nh Ni No Np Os Pb Po Pu Sb Sc Si Sn Yb"  # CO is no Co
CASE_COUNTS = {frozenset({symbol, symbol.upper()}) for symbol in ELEMENTS.split()}
SYNONYMS = [NONE_OF_IT, {"undefined", "not defined"}]
SYNONYMS += [{"infinite", "infinitely many", "infinitely many solution", "infinite solution"}]
DAYS = re.findall(r"\w+", "monday tuesday wednesday thursday friday saturday sunday")
SYNONYMS += [{day[:3], day} for day in DAYS]
GROUP = {text: number for number, texts in enumerate(SYNONYMS) for text in texts}
LETTERS_AND_NUMBER = re.compile(r"([A-Z]{3,})[- ]?(\d+)")  # SHA-256
ACCENTS = re.compile(r"(?<=[A-Za-z\u0370-\u03ff])[\u0300-\u036f]+")  # in other scripts marks are letters
CONTRACTED = re.compile(r"\b(?:can['’]t|cannot|(\w+)n['’]t)\b", re.I)
MARKS = "\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e4e"  # vowel signs and tones
WORD_OR_NUMBER = re.compile(
    rf"(?<![^\W_])[-+]\d+(?:[.,/]\d+)*|\d+(?:[.,/]\d+)*|[^\W\d_](?:[^\W\d_]|[{MARKS}])*"
)
ARTICLES = {"the", "a", "an"}  # not at the end, nor a capital inside: vitamin A
ACRONYM = re.compile(r"[A-Z]{2,4}S")  # AIDS is no plural
VOWEL = re.compile(r"[^b-df-hj-np-tv-xz]")  # none: https is no plural
DASH = re.compile(r" [-/] |(?<=[A-Za-z])-\Z")  # revenue - cost, Cl-
BETWEEN_NUMBERS = re.compile(r"(?<=\d) (?=\d)(?!\d{3}(?!\d))")  # but not the one of 1 000
FREE_TEXT = 6  # words: longer answers that differ need a reader


def yes_no(reference: str, prediction: str, asked: bool) -> Outcome | None:
    gold, answer = truth(reference, asked), truth(prediction, asked)
    if gold is None:
        return Outcome(None, "yes_no", "the reference is neither yes nor no") if asked else None
    if answer is not None:
        if gold == answer and not asked and reference.lower() == "right" != prediction.lower():
            return Outcome(None, "yes_no", "right as a direction?")
        return Outcome(gold == answer, "yes_no", "the same" if gold == answer else "the opposite")
    if not asked and reference.lower() == "right" and answer is None:
        return None  # or left
    first = re.match(r"(\w+)(?:[,;:.]| -| because| since)\s", prediction)
    if first and QUALIFIED.match(prediction):
        return Outcome(None, "yes_no", "a yes or no with a reserve")
    if first and (answer := truth(first[1], asked)) is not None:  # "Yes, because ..."
        return Outcome(gold == answer, "yes_no", "its first word")
    said = prediction.split()
    says_it = any(truth(word, asked) is not None for word in said) and not NO_AS_ARTICLE.match(prediction)
    if len(said) > 3 or says_it:  # "It is true"
        return Outcome(None, "yes_no", "a sentence that is not read as yes or no")
    return Outcome(False, "yes_no", "neither yes nor no")


def truth(text: str, asked: bool) -> bool | None:
    text = text.lower().strip(" .!")
    if asked and text in SHORT:
        return SHORT[text]
    return True if text in YES else False if text in NO else None


@lru_cache(CACHED)
def read_options(text: str) -> tuple[str, str, bool]:
    """(letters, the text behind one letter, written as options?) of `B`, `(B)`, `B) red`, `A, C`, `AC`."""
    if named := OPTION_NAMED.fullmatch(text):
        letters, rest, _ = read_options(named[1])
        return letters or (named[1].upper() if re.fullmatch("[a-h]", named[1]) else ""), rest, True
    if match := OPTION.fullmatch(text):
        return next(filter(None, match.groups())).upper(), "", True
    if SEVERAL_OPTIONS.fullmatch(text):
        letters = re.findall("[A-H]", text)
        return ("".join(letters), "", True) if len({*letters}) == len(letters) else ("", "", False)
    if GLUED_OPTIONS.fullmatch(text) and len(set(text)) == len(text):
        return text, "", "".join(sorted(text)) == text
    match = OPTION_WITH_TEXT.fullmatch(text)
    if match and not SPECIES.fullmatch(text) and "(b)" not in match[3]:  # (a) 5 (b) 3
        return (match[1] or match[2]).upper(), match[3].strip(), True
    return "", "", False


def without_letter(reference: str, prediction: str) -> str:
    """`(D) 12` -> `12` where the reference is no option and no formula with that letter."""
    match = LETTER_AND_VALUE.fullmatch(prediction)
    if not match or read_options(reference)[0] or (match[1] or match[2]) in reference:
        return prediction
    return match[3]


def takes_back(behind: str) -> bool:
    """Does what stands behind an option letter deny it, or name another option?"""
    if DENIED_OPTION.match(behind):
        return True
    return not OF_OPTIONS.match(behind) and bool(OTHER_OPTION.search(LEFT_OUT.split(behind, maxsplit=1)[0]))


def options(reference: str, prediction: str, asked: bool, fold: bool, values: Values) -> Outcome | None:
    """None: the reference is no option. `values` compares the texts behind the letters."""
    gold, gold_text, clear = read_options(reference)
    lone = [text if text in ("I", "J") else "" for text in (reference, prediction)]  # of ten options
    if asked and not gold and re.fullmatch("[a-h]", reference):
        gold, clear = reference.upper(), True
    if lone[0] and (asked or lone[1] or read_options(prediction)[0]):
        gold, clear = lone[0], True
    if not gold or not (clear or asked):
        return Outcome(None, "option", "the reference is no option letter") if asked else None
    answer, answer_text, _ = read_options(prediction)
    answer = answer or lone[1]
    if answer_text != gold_text and takes_back(answer_text):
        named = set(gold) & set(LONE_OPTION.findall(prediction))
        return Outcome(None if named else False, "option", "an option that is denied, or several")
    if not answer and fold and re.fullmatch(r"[a-h]+|[a-h](?:, ?[a-h])+", prediction):
        answer = "".join(re.findall("[A-H]", prediction.upper()))
    if not answer and gold_text:
        return values(gold_text, prediction).by("option")
    if len(gold) > 1 and set(gold) == set(answer) and (" or " in reference) != (" or " in prediction):
        return Outcome(None, "option", "all of them, or one of them?")
    if set(gold) != set(answer):
        said = set(LONE_OPTION.findall(prediction)) if WORD_TEXT.fullmatch(prediction.lstrip("(")) else set()
        if said == set(gold) and not NEGATIONS & set(fold_words(prediction)):
            return Outcome(None, "option", "the same letters in a sentence")  # A and B only
        return Outcome(False, "option", "another option" if answer else "no option letter")
    if gold_text and answer_text and values(gold_text, answer_text).correct is not True:
        return Outcome(None, "option", "the same letter with another text")
    in_a_row = IN_A_ROW.fullmatch(reference) or IN_A_ROW.fullmatch(prediction)
    if gold != answer and in_a_row and not asked:
        return Outcome(None, "option", "options or an order? answer_type='option' or 'list' decides")
    return Outcome(True, "option", "the same option")


@lru_cache(CACHED)
def fold_words(text: str, articles: bool = False) -> tuple[str, ...]:
    """The words and numbers of a text without case, accents, punctuation, plural s; articles where asked."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", ACCENTS.sub("", unicodedata.normalize("NFD", text)))
    text = CONTRACTED.sub(lambda match: f"{match[1] or 'can'} not", text).replace("DNE", "does not exist")
    words = WORD_OR_NUMBER.findall(text.replace("'", "").replace("’", ""))
    shouted, last = text.isupper(), len(words) - 1
    kept = [
        word.casefold() if ACRONYM.fullmatch(word) else singular(word)
        for k, word in enumerate(words)
        if articles or k == last or word.lower() not in ARTICLES or (word == "A" and k and not shouted)
    ]
    return tuple(kept)


def singular(word: str) -> str:
    """In small letters; `https` and `ss` are no plurals, `DVDs` is one."""
    small, stem = word.casefold(), word[:-1].casefold()
    plural = len(word) > 3 and small.endswith("s") and not stem.endswith("s")
    initials = word[:-1].isupper() and word[-1] == "s"
    return stem if plural and (VOWEL.search(stem) or initials) else small


@lru_cache(CACHED)
def is_words(text: str) -> bool:
    """Plain words: letters and harmless signs, and at least one word that is no symbol of algebra."""
    if not WORD_TEXT.fullmatch(text):
        return False
    tokens = re.findall(r"[^\W\d_]+", text)
    shortest = 2 if LETTERS.fullmatch(text) else 3
    return any((len(t) >= shortest or not t.isascii()) and t.lower() not in MATH_WORDS for t in tokens)


@lru_cache(CACHED)
def is_prose(text: str) -> bool:
    """Holds a word that is no symbol, no command of LaTeX and no function."""
    return any(word.lower() not in MATH_WORDS for word in PROSE_WORD.findall(text))


def words(reference: str, prediction: str, fold: bool, asked: bool) -> Outcome | None:
    """None: a formula on each side, or symbols that may be a product (`xy` against `x \\cdot y`)."""
    if not asked and all(FORMULA_TEXT.fullmatch(text.replace(" ", "")) for text in (reference, prediction)):
        return formula_text(reference, prediction)
    folded = [" ".join(fold_words(text)) for text in (reference, prediction)]
    if folded[0] in GROUP and GROUP[folded[0]] == GROUP.get(folded[1]):
        return Outcome(True, "words", "the same in other words")
    if "none" in folded and any(text in NONE_OF_IT for text in folded):
        return Outcome(None, "words", "none: no solution?")
    for one, other in ((reference, prediction), (prediction, reference)):
        if one == "\\emptyset" and " ".join(fold_words(other)) in NONE_OF_IT:
            return Outcome(True, "words", "the empty set in words")
    names = [LETTERS_AND_NUMBER.fullmatch(text) for text in (reference, prediction)]
    if all(names) and not asked:
        same = names[0].groups() == names[1].groups()
        return Outcome(same, "words", "the same name" if same else "another name")
    gold_words, answer_words = is_words(reference) or asked, is_words(prediction) or asked
    if not (gold_words or answer_words or is_prose(reference) or is_prose(prediction)):
        return formula_text(reference, prediction)
    if not asked and gold_words != answer_words and any(is_symbols(t) for t in (reference, prediction)):
        return None
    flags = [FLAG.fullmatch(text) for text in (reference, prediction)]
    no_function = all(flags) and not any(flag[1].lower() in MATH_WORDS for flag in flags)
    if no_function and reference.casefold() != prediction.casefold():
        return Outcome(False, "words", "another text in braces")
    gold, answer = fold_words(reference), fold_words(prediction)
    if not asked and (FORMULA_SIGN.search(reference) or FORMULA_SIGN.search(prediction)):
        return Outcome(None, "words", "a formula with words in it")
    in_full = fold_words(reference, True) == fold_words(prediction, True)
    in_full = in_full or reference.casefold() == prediction.casefold()
    if gold and (glued(gold) == glued(answer) or in_full):
        if not asked and DASH.findall(reference) != DASH.findall(prediction):
            return Outcome(None, "words", "a formula in words, or a charge?")
        same = fold or reference.replace(" ", "") == prediction.replace(" ", "")
        if same and {reference, prediction} in CASE_COUNTS:
            return Outcome(None, "words", "an element or two?")
        return Outcome(same, "words", "the same words" if same else "another case")
    if not asked and is_symbols(reference) and sorted(reference) == sorted(prediction):
        return Outcome(None, "words", "words or products of symbols? answer_type='text' or 'algebra' decides")
    return different_words(gold, answer)


def glued(folded: tuple[str, ...]) -> str:
    """`no one` and `noone` alike, but not `1 12` and `11 2`."""
    return BETWEEN_NUMBERS.sub("|", " ".join(folded)).replace(" ", "")


def is_symbols(text: str) -> bool:
    """Two or three small letters, which may be a product."""
    return bool(re.fullmatch("[a-z]{2,3}", text))


def different_words(gold: tuple[str, ...], answer: tuple[str, ...]) -> Outcome:
    common = set(gold) & set(answer)
    if common and bool(NEGATIONS & set(gold)) != bool(NEGATIONS & set(answer)):
        return Outcome(False, "words", "one side says not")
    if [singular(word) for word in gold] == [singular(word) for word in answer]:
        return Outcome(None, "words", "a plural or another name?")
    if contains(answer, gold) or contains(gold, answer):
        return Outcome(None, "words", "one side says more than the other")
    if (common and max(len(gold), len(answer)) > FREE_TEXT) or min(len(gold), len(answer)) > FREE_TEXT:
        return Outcome(None, "words", "free text that differs")
    if numbers_may_agree(gold, answer):
        return Outcome(None, "words", "numbers in other words")
    return Outcome(False, "words", "other words")


def numbers_may_agree(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """Both speak of numbers, in forms that differ: not `room 12`, `room 13`, nor `Rome 12`, `Paris 12`."""
    numbers = [[values for word in side if (values := meanings(word))] for side in (gold, answer)]
    others = [[w for w in side if not meanings(w) and w not in ORDINAL] for side in (gold, answer)]
    if not all(numbers):
        return False
    same_count = len(numbers[0]) == len(numbers[1])
    if same_count and all(a & b for a, b in zip(*numbers, strict=True)):
        return set(others[0]) <= set(others[1]) or set(others[1]) <= set(others[0])
    return not same_count or others[0] != others[1]


def meanings(word: str) -> set[Fraction]:
    """The numbers a word may stand for."""
    number = (decimal(word) or ratio(word)) if any(sign.isdigit() for sign in word) else None
    return {number.value} if number else MEANINGS.get(word, set())


def contains(longer: tuple[str, ...], shorter: tuple[str, ...]) -> bool:
    n = len(shorter)
    return 0 < n < len(longer) and any(longer[k : k + n] == shorter for k in range(len(longer) - n + 1))


def formula_text(reference: str, prediction: str) -> Outcome | None:
    """`H2O` against `H_2O`."""
    if not all(FORMULA_TEXT.fullmatch(text.replace(" ", "")) for text in (reference, prediction)):
        return None
    sides = [re.sub(r"[_{}\s^]", "", text) for text in (reference, prediction)]
    if sides[0] == sides[1]:
        return Outcome(True, "words", "the same formula text")
    element = re.search("[A-Z][a-z]", sides[0] + sides[1])
    if sorted(sides[0]) == sorted(sides[1]) and not element:
        return Outcome(None, "words", "formula text or products? answer_type='text' or 'algebra' decides")
    return Outcome(False, "words", "another formula text")
