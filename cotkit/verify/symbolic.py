r"""The symbolic stage: two formulas compared by SymPy over math-verify's LaTeX parser.

`refusal` is cheap and runs anywhere; `compare` imports SymPy, may run for ever on a hostile formula, and is
only ever called in the killable processes of `workers.py`. Text goes through math-verify's parser and nothing
else: `sympify` and `parse_expr` execute what they are given.

Equality needs a proof: a difference that simplifies to zero. Two constants that agree to 50 digits without
one, and functions that agree at every sampled point, are undecided; a difference seen anywhere is False.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from cotkit.verify.normalise import depth

BLOW_UP = re.compile(
    r"\^\s*[({]?\s*(?:\(\s*[\d.]+\s*\)|\{\s*[\d.]+\s*\}|[\d.]+)\s*\^"  # a tower of powers
    r"|\^\s*\{[^{}]*\d\s*\^"
    r"|\^\s*\{?\s*-?\d{5,}|\d{400,}"  # an exponent, a literal
    r"|!\s*!|\d{5,}\s*!|!\s*\)\s*!"  # factorials
    r"|\\(?:binom|sum|prod|int)[^a-z]*\{?\d{6,}"
)
WORD = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]{4,}|(?<![\\A-Za-z])(?:and|or|not|if|is|the|for|but|to|of|no)(?![A-Za-z])"
    r"|(?<=\d )by(?= \d)"
    r"|(?<![\\A-Za-z])(?:[Ss]he|has|had|his|[Yy]ou|can|are|was|got|now|per|its|[Ss]o|pH)(?![A-Za-z])"
)
FUNCTIONS = re.findall(
    r"\w+",
    "arcsin arccos arctan arccot sinh cosh tanh sin cos tan cot sec csc log ln exp max min gcd lcm det",
)
PLAIN_FUNCTION = re.compile(rf"(?<![\\A-Za-z])({'|'.join(FUNCTIONS)})(?![a-z])")
INVERSE = {"asin": r"\arcsin ", "acos": r"\arccos ", "atan": r"\arctan ", "arsinh": r"\arcsinh "}
PLAIN_INVERSE = re.compile(rf"(?<![\\A-Za-z])({'|'.join(INVERSE)})(?![a-z])")
GREEK = re.findall(
    r"\w+", "alpha beta gamma delta epsilon theta lambda sigma omega phi psi rho tau mu nu eta xi zeta kappa"
)
PLAIN_GREEK = re.compile(rf"(?<![\\A-Za-z])({'|'.join(GREEK)})(?![A-Za-z])")
UNREADABLE = re.compile(
    r"'|[fghFG]\^\{?-1\}? ?\([a-z]\)"
    r"|\\(?:forall|exists|equiv|pmod|bmod|mod|to|ldots|text|pm|mp|begin|oplus|otimes|ne|cross)(?![A-Za-z])"
)
SIDE_BY_SIDE = re.compile(r"(?<![\w.^])\d[\d.]* [\d.]|\d\.\d+\.\d")  # 0 1 2 is no product, 10.0.0.1 neither
LONE_I = re.compile(r"(?<![A-Za-z\\])I(?![A-Za-z])")  # as SymPy prints it
LOG_WITHOUT_BASE = re.compile(r"\\log(?![A-Za-z_])")
MIXED = re.compile(r"(?<![\w.^}\\])(\d{1,9}) ?\\frac\{(\d{1,9})\}\{(\d{1,9})\}")


def improper(match: re.Match) -> str:
    r"""`1\frac{1}{2}` before `\pi` or a root is a sum, as it is alone."""
    whole, top, bottom = map(int, match.groups())
    return rf"\frac{{{whole * bottom + top}}}{{{bottom}}}" if top < bottom else match[0]


PREPARE = [
    (MIXED, improper),
    (re.compile(r"(?<=[\d})]) ?\* ?I\b|(?<![A-Za-z\\])I(?= ?\*)"), "i"),  # SymPy's imaginary unit
    (PLAIN_INVERSE, lambda match: INVERSE[match[1]]),
    (PLAIN_FUNCTION, r"\\\1 "),
    (PLAIN_GREEK, r"\\\1 "),
    (re.compile(r"\\lg(?![A-Za-z])"), r"\\log_{10} "),
    (re.compile(r"(\d+(?:\.\d+)?|\([^()]*\)) ?\^\\circ ?"), r"(\\frac{\1 \\pi}{180})"),
    (
        re.compile(r"(?<![\d.])(\d+) ?/ ?(\d+)(?= ?(?:[A-Za-z(]|\\(?!cdot|times|le|ge|cup)))"),
        r"\\frac{\1}{\2}",
    ),
    (re.compile(r"(?<=\d)[eE](?=[+-]?\d)([+-]?\d+)"), r" \\cdot 10^{\1}"),
    (re.compile(r"\s*\*\s*"), r" \\cdot "),
    (re.compile(r"\^\(([^()^]*)\)"), r"^{\1}"),
]
CONSTANT = re.compile(r"[CcKk](?:_\{?\d\}?)?")  # of integration
WHOLE_NUMBERS = {"j", "k", "l", "m", "n"}
DEEPEST = 30  # brackets inside brackets
DIGITS = 50  # of agreement between two constants
SAMPLES = ("7/10", "13/10", "19/10", "31/100", "37/100", "23/10", "13/5", "17/10")  # given to symbols in turn
ROUNDS = 4  # of sampling
SAME = 1e-15  # relative difference of two formulas at a sampled point, computed to 30 digits
COMMAND_OR_LETTER = re.compile(r"\\[A-Za-z]+|[A-Za-z]")
NO_SYMBOLS = {
    *re.findall(
        r"\w+",
        "frac sqrt cdot times left right pi infty sum prod int lim binom cup cap in le ge overline vec hat"
        " bar mathbb mathcal circ lfloor rfloor lceil rceil emptyset setminus langle rangle partial e d",
    ),
    *FUNCTIONS,
}


def refusal(text: str) -> str:
    """Why this text is not given to SymPy; "" when it may be."""
    if BLOW_UP.search(text):
        return "the formula may blow up"
    if depth(text) > DEEPEST:
        return "nested too deeply"
    plain = PLAIN_GREEK.sub("", PLAIN_INVERSE.sub("", PLAIN_FUNCTION.sub("", text)))
    if WORD.search(plain):
        return "words in a formula"
    if UNREADABLE.search(text):
        return "a notation the parser does not keep"
    if SIDE_BY_SIDE.search(text):
        return "numbers side by side"
    return ""


def prepare(text: str) -> str:
    """Canonical text as the LaTeX that math-verify's parser reads without loss."""
    for pattern, replacement in PREPARE:
        text = pattern.sub(replacement, text)
    return text


def compare(reference: str, prediction: str, options: dict[str, Any]) -> tuple[bool | None, str]:
    """(correct, reason) of two canonical texts. `options`: tolerance, rounding, positive_symbols."""
    result = compared(reference, prediction, options)
    sides = [bool(LOG_WITHOUT_BASE.search(text)) for text in (reference, prediction)]
    if result[0] is False and sides[0] != sides[1] and r"\ln" in reference + prediction:
        natural = (LOG_WITHOUT_BASE.sub(r"\\ln ", text) for text in (reference, prediction))
        if compared(*natural, options)[0]:
            return None, "equal if the logarithm without a base is the natural one"
    if result[0] is False and LONE_I.search(reference + " " + prediction):
        imaginary = (LONE_I.sub("i", text) for text in (reference, prediction))
        if compared(*imaginary, options)[0]:
            return None, "equal if I is the imaginary unit"
    return result


def compared(reference: str, prediction: str, options: dict[str, Any]) -> tuple[bool | None, str]:
    import sympy

    texts = [prepare(text) for text in (reference, prediction)]
    try:
        gold, answer = (parse(text) for text in texts)
    except Exception as error:  # noqa: BLE001  the parser raises bare Exceptions
        return None, f"not parsed ({type(error).__name__})"
    if lost_symbols(gold, texts[0]) or lost_symbols(answer, texts[1]):
        return None, "the parser lost a symbol"
    names = [symbol_names(side) for side in (gold, answer)]
    apart = [names[0] - names[1], names[1] - names[0]]
    if all(len(side) == 1 and CONSTANT.fullmatch(*side) for side in apart):
        (own,), (other,) = apart
        found = {s for s in answer.free_symbols if s.name == other}
        renamed = answer.xreplace(dict.fromkeys(found, sympy.Symbol(own, real=True)))
        if gold.is_Add and renamed.is_Add and sympy.expand(gold - renamed) == 0:
            return None, "equal if the letters are constants of integration"
    if names[0] != names[1] and {n.lower() for n in names[0]} == {n.lower() for n in names[1]}:
        return False, "symbols differ by case"
    terms = [unknown_terms(side) for side in (gold, answer)]
    if terms[0] != terms[1]:
        return None, "sums, integrals or derivatives of terms that are not known"
    known = {term: sympy.Symbol(f"term {k}", real=True) for k, term in enumerate(terms[0])}
    gold, answer = gold.xreplace(known), answer.xreplace(known)
    equations = [isinstance(side, sympy.Equality) for side in (gold, answer)]
    if all(equations):
        return same_equation(gold, answer)
    if any(equations):
        return None, "an equation against a value"
    if isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr):
        return same_expression(gold, answer, options, decimals_of(prediction))
    return by_math_verify(gold, answer)


def parse(text: str) -> Any:
    """A SymPy object, symbols real and with their case, nothing evaluated."""
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

    config = ConversionConfig(lowercase_symbols=False)
    return latex2sympy(
        text, is_real=True, convert_degrees=False, normalization_config=None, conversion_config=config
    )


def unknown_terms(value: Any) -> set:
    """Sums, products, integrals, limits and derivatives of what is not known: f(x), x_i over i, y by x.

    SymPy would take it for a constant.
    """
    import sympy
    from sympy.core.function import AppliedUndef

    found = set()
    for node in value.atoms(sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative):
        term = node.args[0]
        bound = {str(s) for s in (node.variables if hasattr(node, "variables") else node.args[1:2])}
        names = {symbol.name for symbol in term.free_symbols}
        indices = {part for name in names for part in re.findall("[A-Za-z]+", name.partition("_")[2])}
        constant = isinstance(node, sympy.Derivative) and names and not bound & names
        if term.has(AppliedUndef) or bound & indices or constant:
            found.add(node)
    return found


def symbol_names(value: Any) -> set[str]:
    from sympy import Symbol
    from sympy.core.function import AppliedUndef

    atoms = value.atoms(Symbol, AppliedUndef)
    return {atom.func.__name__ if isinstance(atom, AppliedUndef) else atom.name for atom in atoms}


def lost_symbols(value: Any, text: str) -> bool:
    """Does the text hold a letter that the parsed object does not?"""
    kept = " ".join(symbol_names(value))
    return any(
        name not in kept
        for name in symbols_in(text)
        if name not in ("R", "Z", "N", "Q", "C") or "mathbb" not in text
    )


def symbols_in(text: str) -> set[str]:
    """The letters and Greek names in a formula that stand for something."""
    return {name.lstrip("\\") for name in COMMAND_OR_LETTER.findall(text)} - NO_SYMBOLS


def decimals_of(text: str) -> int | None:
    found = re.findall(r"\.(\d+)", text)
    return max(map(len, found)) if found else None


def same_expression(
    gold: Any, answer: Any, options: dict[str, Any], decimals: int | None
) -> tuple[bool | None, str]:
    import sympy
    from sympy.core.function import AppliedUndef

    if gold.has(AppliedUndef) != answer.has(AppliedUndef):
        return None, "an unknown function on one side"
    floats = [side.has(sympy.Float) for side in (gold, answer)]
    absolute = gold.has(sympy.Abs) or answer.has(sympy.Abs)
    gold, answer = (evaluated(side) for side in (gold, answer))
    i = {symbol: sympy.I for symbol in gold.free_symbols | answer.free_symbols if symbol.name == "i"}
    if i and sympy.expand(gold - answer) != 0:
        gold, answer = gold.subs(i), answer.subs(i)
    if gold.free_symbols or answer.free_symbols:
        result = same_function(gold, answer, absolute, options)
        one_decimal = result[0] is False and floats[0] != floats[1]
        if one_decimal and sampled(gold, answer, [1], options["rounding"]):  # x/3 against 0.333333x
            return None, "equal but for a rounded coefficient"
        return result
    return same_constant(gold, answer, floats, options, decimals)


def evaluated(value: Any) -> Any:
    """Decimals as exact fractions, integrals and sums carried out, unknown functions as symbols."""
    import sympy
    from sympy.core.function import AppliedUndef

    value = value.xreplace({number: sympy.Rational(str(number)) for number in value.atoms(sympy.Float)})
    value = value.xreplace({f: sympy.Symbol(str(f), real=True) for f in value.atoms(AppliedUndef)})
    return value.doit()


def same_constant(
    gold: Any, answer: Any, floats: list[bool], options: dict[str, Any], decimals: int | None
) -> tuple[bool | None, str]:
    import sympy

    if sympy.simplify(gold - answer) == 0:
        return True, "equal constants"
    gap, size = abs((gold - answer).evalf(DIGITS)), abs(gold.evalf(DIGITS))
    if not (gap.is_Float or gap.is_Integer) or not (size.is_Float or size.is_Integer):
        return None, "no number"
    if options.get("tolerance") is not None:
        correct = bool(gap <= options["tolerance"] * size)
        return correct, f"{'within' if correct else 'outside'} the tolerance"
    if floats[1] and not floats[0] and not gold.is_rational:
        rounded = decimals is not None and gap <= sympy.Float("0.51") * sympy.Float(10) ** -decimals
        return (None, "a decimal for an exact irrational value") if rounded else (False, "different values")
    if any(floats):
        correct = bool(gap <= options["rounding"] * size)
        return correct, "equal within rounding" if correct else "different values"
    if gap < size * sympy.Float(f"1e-{DIGITS - 5}"):
        return None, f"agree to {DIGITS} digits, without a proof"
    return False, "different values"


def same_function(gold: Any, answer: Any, absolute: bool, options: dict[str, Any]) -> tuple[bool | None, str]:
    import sympy

    if gold == answer:
        return True, "equal formulas"
    tolerance = options.get("tolerance")
    agree = sampled(gold, answer, [1, -1] if absolute else [1], tolerance or SAME)
    if agree is False:
        if same_at_whole_numbers(gold, answer):
            return None, "equal where the letter is a whole number"
        return False, "different at a sampled point"
    if agree and tolerance:
        return True, "within the tolerance at every sampled point"
    difference = sympy.expand(gold - answer)
    difference = difference if difference.is_number else sympy.simplify(difference)
    if difference == 0:
        return True, "equal formulas"
    if difference.is_number and abs(difference.evalf(DIGITS)) > sympy.Float(f"1e-{DIGITS - 10}"):
        return False, "different by a constant"
    if options.get("positive_symbols") and not absolute:
        positive = {s: sympy.Symbol(s.name, positive=True) for s in gold.free_symbols | answer.free_symbols}
        difference = sympy.expand_log((gold - answer).subs(positive), force=True)
        if sympy.simplify(difference) == 0:
            return True, "equal formulas for positive symbols"
    return None, "no proof, and no difference found" if agree else "cannot be evaluated"


def sampled(gold: Any, answer: Any, signs: list[int], tolerance: float) -> bool | None:
    """False: they differ at a sampled point; True: they agree at all; None: no point could be evaluated."""
    import sympy

    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    seen = None
    for turn, sign in product(range(ROUNDS), signs):
        places = ((turn * 3 + k * 5 + k // 8) % len(SAMPLES) for k in range(len(symbols)))
        values = {s: sign * sympy.Rational(SAMPLES[k]) for s, k in zip(symbols, places, strict=True)}
        one, other = (side.subs(values).evalf(30) for side in (gold, answer))
        if not (one.is_number and other.is_number) or not (one.is_finite and other.is_finite):
            continue
        gap = abs(one - other).evalf(30)
        if gap > tolerance * abs(one):
            return False
        seen = True
    return seen


def same_at_whole_numbers(gold: Any, answer: Any) -> bool:
    r"""`\cos(n\pi)` and `(-1)^n`"""
    import sympy

    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    if not any(symbol.name in WHOLE_NUMBERS for symbol in symbols):
        return False
    for number in range(1, 6):
        values = {
            s: number + k if s.name in WHOLE_NUMBERS else sympy.Rational(SAMPLES[k % len(SAMPLES)])
            for k, s in enumerate(symbols)
        }
        gap = (gold - answer).subs(values).evalf(30)
        if not gap.is_number or not gap.is_finite or abs(gap) > SAME * (1 + abs(gold.subs(values).evalf(30))):
            return False
    return True


def same_equation(gold: Any, answer: Any) -> tuple[bool | None, str]:
    """Equal up to a constant factor; polynomials that are not are different equations."""
    import sympy

    sides = [evaluated(side.lhs - side.rhs) for side in (gold, answer)]
    tops = [sympy.together(side).as_numer_denom()[0] for side in sides]
    symbols = sorted(tops[0].free_symbols | tops[1].free_symbols, key=str)
    if 0 in [sympy.expand(top) for top in tops] or not symbols:
        return None, "an equation that is always or never true"
    ratio = sympy.simplify(tops[0] / tops[1])
    if ratio.is_number and ratio != 0:
        return True, "the same equation"
    if all(top.is_polynomial(*symbols) for top in tops):
        return False, "another equation"
    return (
        (True, "the same equation") if verified(gold, answer) else (None, "no proof that the equations agree")
    )


def by_math_verify(gold: Any, answer: Any) -> tuple[bool | None, str]:
    """Sets, inequalities and matrices."""
    import sympy

    pair = (gold, answer)
    if all(isinstance(side, sympy.Rel) for side in pair):
        return same_inequality(gold, answer)
    if any(isinstance(side, sympy.Rel | sympy.And) for side in pair):
        if any(isinstance(side, sympy.Expr) for side in pair):
            return False, "an inequality against a value"
        return same_solutions(gold, answer) or (verified(gold, answer) or None, "math-verify")
    if verified(gold, answer):
        return True, "math-verify"
    if any(all(isinstance(side, family) for side in pair) for family in (sympy.Set, sympy.MatrixBase)):
        return False, "math-verify"
    return None, "different kinds of object"


def same_inequality(gold: Any, answer: Any) -> tuple[bool | None, str]:
    """Equal up to a positive factor, turned round or not; in one variable the solutions decide."""
    import sympy

    sides = []
    for relation in (gold, answer):
        sign = -1 if isinstance(relation, sympy.StrictLessThan | sympy.LessThan) else 1
        strict = isinstance(relation, sympy.StrictLessThan | sympy.StrictGreaterThan)
        sides.append((evaluated(sign * (relation.lhs - relation.rhs)), strict))
    ratio = sympy.simplify(sides[0][0] / sides[1][0]) if sides[1][0] != 0 else sympy.nan
    if ratio.is_number and ratio.is_positive:
        same = sides[0][1] == sides[1][1]
        return same, "the same inequality" if same else "strict on one side only"
    return same_solutions(gold, answer) or (verified(gold, answer) or None, "math-verify")


def same_solutions(gold: Any, answer: Any) -> tuple[bool, str] | None:
    """The sets that inequalities in one variable describe; None where they cannot be found."""
    import sympy

    if len(gold.free_symbols | answer.free_symbols) != 1:
        return None
    sets = []
    for side in (gold, answer):
        if isinstance(side, sympy.Set):
            sets.append(side)
        elif isinstance(side, sympy.Rel | sympy.And):
            sets.append(
                sympy.Intersection(*(part.as_set() for part in getattr(side, "_unsorted_args", (side,))))
            )
        else:
            return None
    return sets[0] == sets[1], "the same solutions" if sets[0] == sets[1] else "other solutions"


def verified(gold: Any, answer: Any) -> bool:
    from math_verify import verify

    options = {"allow_set_relation_comp": True, "timeout_seconds": 0}
    return bool(verify(gold, answer, **options) or verify(answer, gold, **options))
