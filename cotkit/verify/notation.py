r"""Tables of notation: characters, LaTeX commands, program output, patterns. `normalise.py` applies them.

A new spelling is one more row here, with a case in tests/verify/answer_cases.txt.
"""

from __future__ import annotations

import re

VULGAR = dict(
    zip(
        "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅒",
        re.findall(r"\S+", "1/2 1/3 2/3 1/4 3/4 1/5 2/5 3/5 4/5 1/6 5/6 1/8 3/8 5/8 7/8 1/10"),
        strict=True,
    )
)
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉ₙ", "0123456789n", strict=True))
SIGNS = re.findall(
    r"\w+",
    "times pm mp le le ge ge ne approx infty sqrt cup cap emptyset in to setminus ldots langle rangle angle"
    " forall cdot cdot cdot pi theta alpha beta gamma delta epsilon lambda sigma omega phi",
)
INVISIBLE = [0, 0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065)]
INVISIBLE += [*range(0x2066, 0x206A), 0xFE0F, 0xFEFF]
CHARACTERS = str.maketrans(
    {chr(0xFEE0 + ord(sign)): sign for sign in map(chr, range(0x21, 0x7F))}  # full width, as in Chinese
    | {sign: rf"\{name} " for sign, name in zip("×±∓≤⩽≥⩾≠≈∞√∪∩∅∈→∖…⟨⟩∠∀·⋅∙πθαβγδελσωφ", SIGNS, strict=True)}
    | dict.fromkeys("−–—‒﹣－", "-")
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
    | dict.fromkeys(map(chr, INVISIBLE), "")
    | dict.fromkeys("“”„″", '"')
    | dict.fromkeys("‘’′", "'")
    | dict(zip("÷⁄∕∗、。µΩ٫٬٪", "///*,.μΩ.,%", strict=True))
    | {"ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "∧": " and ", "∨": " or "}
    | {"ⅈ": "i", "ⅇ": "e"}
    | {"°": r"^\circ ", "º": r"^\circ ", "℃": r"^\circ C", "℉": r"^\circ F"}
)

SYNONYMS = [  # (what it becomes, the LaTeX commands that mean it)
    (r"\frac", "dfrac tfrac cfrac"),
    (r"\binom", "dbinom tbinom"),
    (r"\le ", "leq leqslant le"),
    (r"\ge ", "geq geqslant ge"),
    (r"\ne ", "neq ne"),
    (r"\infty ", "infty infin"),
    (r"\emptyset ", "varnothing empty emptyset"),
    (r"\cdot ", "cdot cdotp"),
    (r"\ldots ", "dots ldots cdots dotsc dotsb hdots"),
    (r"\approx ", "approx simeq thickapprox doteq"),
    (r"\to ", "rightarrow longrightarrow to"),
    (r"\setminus ", "setminus backslash"),
    (r"\mathbb{R}", "R Real Reals"),
    (r"\cup ", "cup bigcup"),
    (r"^\circ ", "degree textdegree"),
    (r"\$", "textdollar dollar"),
    (r"\{", "lbrace"),
    (r"\}", "rbrace"),
    (" or ", "lor vee"),
    (" and ", "land wedge"),
    (" ", "quad qquad thinspace space enspace"),
    ("", "displaystyle textstyle limits nolimits left right middle"),
    ("", "big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr"),
    ("|", "vert lvert rvert mid"),
    ("<", "lt"),
    (">", "gt"),
    (":", "colon"),
    ("/", "div"),
    ("*", "ast"),
    ("[", "lbrack"),
    ("]", "rbrack"),
    ("'", "prime"),
    ("%", "percent"),
    ("€", "euro"),
    ("£", "pounds"),
    ("i", "imath"),
]
COMMANDS = {name: new for new, names in SYNONYMS for name in names.split()}
COMMAND = re.compile(r"\\(left|right)\s*\.|\\([A-Za-z]+)")
FONT_COMMANDS = re.findall(  # \text-like commands set their content apart, \math-like ones do not
    r"\w+",
    "text mbox hbox textbf textit textrm texttt textnormal emph underline operatorname"
    " mathrm mathbf mathit mathsf mathtt boldsymbol bm bf rm",
)
FONTS = re.compile(rf"\\((?:{'|'.join(FONT_COMMANDS)})\*?)\s*\{{([^{{}}]*)\}}")
MATRIX = re.compile(
    r"\\begin\{(?:(?:[pbB]|small)?matrix|array)\}(?:\{[lcr|\s]*\})?(.*?)\\end\{[a-zA-Z]+\}", re.S
)
SYSTEM = re.compile(  # equations under one another after a brace
    r"(?:\\left\s*)?(\\\{\s*)?\\begin\{(cases|array|aligned)\}(?:\{[lcr|\s]*\})?(.*?)\\end\{\2\}"
    r"(?:\s*\\right\s*\.)?",
    re.S,
)
AT_A_RELATION = re.compile(r"\s*&\s*(?=[=<>]|\\[lgn]e)|(?<=[=<>])\s*&\s*")
RELATION = re.compile(r"[=<>]|\\(?:[lgn]eq?|in)(?![A-Za-z])")
VECTOR = (
    r"\\(?:vec|hat|overrightarrow|mathbf|boldsymbol|bm)\s*"
    r"(?:\{\s*\\?[A-Za-z]+\s*\}|[A-Za-z])(?:_(?:\w|\{[^{}]*\}))?"
)
CROSS_PRODUCT = re.compile(  # of vectors: its factors do not commute, and it is no scalar product
    rf"(\\nabla\s*|{VECTOR}\s*(?=\\times\s*(?:{VECTOR}|\(|\\left))|\)\s*(?=\\times\s*{VECTOR}))"
    r"\\times(?![A-Za-z])"
)
LINE_BREAK = re.compile(r"(?<=[\w)}])\s*\\\\\s*(?=[A-Za-z](?:_\w|_\{\w+\})?\s*=)")  # x=1 \\ y=2
ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?|\\cr\b")
SPACING = [
    (re.compile(r"(?<!\\)\\!"), ""),
    (re.compile(r"(?<!\\)\\[,;:> ]|~|\\hspace\{[^}]*\}"), " "),
    (re.compile(r"\\([%#&_])"), r"\1"),
    (re.compile(r"\\mathbb\s*([A-Z])"), r"\\mathbb{\1}"),
]
PATTERNS = [
    (re.compile(r"^(?:minus|negative) (?=[\d.])", re.I), "-"),
    (re.compile(r"^([-+]?\d+(?:\.\d+)?) (?:10\^|1[eE](?=[-+\d]))\{?([-+]?\d+)\}?"), r"\1\\cdot 10^{\2}"),
    (re.compile(r"^pH (?:of |is )?(?=[\d.])"), "pH = "),
    (re.compile(r"\{ ?([^{}\\]+)\\choose ([^{}\\]+)\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"(?<=\d)\{,\}(?=\d)"), ","),
    (re.compile(r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])\s*"), r"^\\circ "),
    (re.compile(r"(?<=[\d)\]}])\s*\^\s*\\circ\s*(?=[CFK]\b)"), r" ^\\circ "),
    (re.compile(r"(?<=\d)\s*\^\s*(?:\{\s*o\s*\}|o(?![A-Za-z]))"), r" ^\\circ "),
    (re.compile(r"(?<![\\A-Za-z])sqrt(?![A-Za-z])"), r"\\sqrt"),
    (re.compile(r"(?<![\\A-Za-z])cbrt(?![A-Za-z])"), r"\\sqrt[3]"),
    (re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])"), r"\\pi "),
    (re.compile(r"(?<![\\A-Za-z])(?:inf|oo|[Ii]nfinity|infty)(?![A-Za-z])"), r"\\infty "),
    (re.compile(r"\\ldots\s*|\.{3,}"), r"\\ldots "),
    (  # a vector, <1, 2>; in 0 < x, y > 2 no sign opens one
        re.compile(r"(^|[=,;] ?|(?:and|or) )<([^<>=]+,[^<>=]+)>(?= ?(?:$|[,;]|and\b|or\b))"),
        r"\1\\langle \2\\rangle",
    ),
    (re.compile(r"<=|=<"), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"(?<=\s)!=|(?<=[a-z])!=(?=\s)"), r"\\ne "),
    (re.compile(r"=="), "="),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\\\{\s*\\\}|^\{\s*\}$"), r"\\emptyset "),
    (re.compile(r"(?<=\d) (?=(?:st|nd|rd|th) ?$)"), ""),
    (re.compile(r"\s*([\^_])\s*(?!\\circ)"), r"\1"),
    (re.compile(r"\s+"), " "),
]
HAS_PATTERN = re.compile(  # what one of PATTERNS can find something in; most answers are none
    r"[\\{^_<=*]|\.\.\.|!=|>=|\s\s|[^\S ]|^(?i:minus|negative) |^pH | (?:st|nd|rd|th) ?$|\d 1[eE]"
    r"|(?<![\\A-Za-z])(?:[sc][qb]rt|pi|oo|[Ii]nf(?:inity|ty)?)(?![A-Za-z])"
)

CALLS = {  # what NumPy and SymPy print: name -> template over its arguments, or over all of them
    "Interval": "[{0},{1}]",
    "Interval.open": "({0},{1})",
    "Interval.Lopen": "({0},{1}]",
    "Interval.Ropen": "[{0},{1})",
    "Rational": r"\frac{{{0}}}{{{1}}}",
    "Fraction": r"\frac{{{0}}}{{{1}}}",
    "Eq": "{0} = {1}",
    "Ne": r"{0} \ne {1}",
    "Point2D": "({0},{1})",
    "Point3D": "({0},{1},{2})",
    "datetime.date": "{0}-{1:0>2}-{2:0>2}",
    "Union": r" \cup ",
    "FiniteSet": r"\{{{all}\}}",
}
CALLS |= dict.fromkeys(
    re.findall(
        r"\S+",
        "array np.array Matrix ImmutableMatrix Decimal set frozenset"
        " np.float64 np.float32 np.int64 np.bool_ numpy.float64 numpy.float32 numpy.int64 numpy.bool_",
    ),
    "{all}",
)
CALL = re.compile(rf"(?<![\w\\.])({'|'.join(re.escape(n) for n in sorted(CALLS, key=len, reverse=True))})\(")
NUMPY_ROW = re.compile(r"\[\s*[-+\d.][-+\d.eE]*(?:\s+[-+\d.][-+\d.eE]*)+\s*\]")
