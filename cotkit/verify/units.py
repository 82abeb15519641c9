r"""Units with exact factors: `km/h`, `kilometers per hour`, `J/(K*mol)`, `m^3/mol`, `s^-1`, `square meters`.

A unit is a dimension (powers of base units) and an exact Fraction to the base. The table is data: one row a
unit, SI prefixes applied where the row says so. Definitions are those of the SI brochure (BIPM, 9th edition)
and, for the customary units, of the 1959 international yard and pound. A table instead of a units library
keeps a check exact (no floats), fast, and free of text evaluation.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from cotkit.verify.normalise import CACHED

# symbols | names (plurals are understood) | factor | in base units | SI prefixes?
TABLE = """
m              | meter metre                       | 1                    | m          | yes
mcg            |                                   | 1/10^9               | kg         |
g gm gms       | gram gramme                       | 1/1000               | kg         | yes
s sec secs     | second                            | 1                    | s          | yes
A amp amps     | ampere                            | 1                    | A          | yes
K              | kelvin                            | 1                    | K          | yes
mol            | mole                              | 1                    | mol        | yes
cd             | candela                           | 1                    | cd         | yes
Hz             | hertz                             | 1                    | cycle s^-1 | yes
Bq             | becquerel                         | 1                    | s^-1       | yes
N              | newton                            | 1                    | kg m s^-2  | yes
Pa             | pascal                            | 1                    | kg m^-1 s^-2 | yes
J              | joule                             | 1                    | kg m^2 s^-2 | yes
W              | watt                              | 1                    | kg m^2 s^-3 | yes
C              | coulomb                           | 1                    | A s        | yes
V              | volt                              | 1                    | kg m^2 s^-3 A^-1 | yes
F              | farad                             | 1                    | kg^-1 m^-2 s^4 A^2 | yes
Ω ohm          | ohm                               | 1                    | kg m^2 s^-3 A^-2 | yes
S              | siemens                           | 1                    | kg^-1 m^-2 s^3 A^2 | yes
Wb             | weber                             | 1                    | kg m^2 s^-2 A^-1 | yes
T              | tesla                             | 1                    | kg s^-2 A^-1 | yes
H              | henry                             | 1                    | kg m^2 s^-2 A^-2 | yes
G              | gauss                             | 1/10000              | kg s^-2 A^-1 |
L l            | liter litre                       | 1/1000               | m^3        | yes
M              | molar                             | 1000                 | mol m^-3   | yes
eV             | electronvolt                      | 1602176634/10^28     | kg m^2 s^-2 | yes
cal            | calorie                           | 4184/1000            | kg m^2 s^-2 | yes
Wh             | watthour                          | 3600                 | kg m^2 s^-2 | yes
BTU Btu        |                                   | 105505585262/10^8    | kg m^2 s^-2 |
erg ergs       |                                   | 1/10^7               | kg m^2 s^-2 |
dyn            | dyne                              | 1/10^5               | kg m s^-2  |
lbf            |                                   | 44482216152605/10^13 | kg m s^-2  |
hp             | horsepower                        | 74569987158227022/10^14 | kg m^2 s^-3 |
bar            | bar                               | 10^5                 | kg m^-1 s^-2 | yes
atm            | atmosphere                        | 101325               | kg m^-1 s^-2 |
Torr torr mmHg |                                   | 101325/760           | kg m^-1 s^-2 |
psi            |                                   | 44482216152605*10^8/(10^13*254*254) | kg m^-1 s^-2 |
t              | tonne                             | 1000                 | kg         |
lb lbs         | pound                             | 45359237/10^8        | kg         |
oz             | ounce                             | 45359237/(16*10^8)   | kg         |
               | ton                               | 2000*45359237/10^8   | kg         |
               | stone                             | 14*45359237/10^8     | kg         |
               | micron                            | 1/10^6               | m          |
in             | inch inche                        | 254/10000            | m          |
ft             | foot feet                         | 3048/10000           | m          |
yd yds         | yard                              | 9144/10000           | m          |
mi             | mile                              | 1609344/1000         | m          |
nmi            |                                   | 1852                 | m          |
Å              | angstrom ångström                 | 1/10^10              | m          |
au AU          |                                   | 149597870700         | m          |
ly             | lightyear                         | 9460730472580800     | m          |
ha             | hectare                           | 10^4                 | m^2        |
acre           | acre                              | 40468564224/10^7     | m^2        |
cc             |                                   | 1/10^6               | m^3        |
gal            | gallon                            | 3785411784/10^12     | m^3        |
qt             | quart                             | 3785411784/(4*10^12) | m^3        |
pt             | pint                              | 3785411784/(8*10^12) | m^3        |
               | cup                               | 3785411784/(16*10^12) | m^3       |
tbsp           | tablespoon                        | 3785411784/(256*10^12) | m^3      |
tsp            | teaspoon                          | 3785411784/(768*10^12) | m^3      |
min mins       | minute                            | 60                   | s          |
h hr hrs       | hour                              | 3600                 | s          |
d              | day                               | 86400                | s          |
wk wks         | week                              | 604800               | s          |
               | fortnight                         | 1209600              | s          |
mo             | month                             | 1                    | month      |
yr yrs         | year                              | 12                   | month      |
               | decade                            | 120                  | month      |
               | century centurie                  | 1200                 | month      |
mph            |                                   | 1609344/(3600*1000)  | m s^-1     |
kph kmph kmh   |                                   | 1000/3600            | m s^-1     |
kn             | knot                              | 1852/3600            | m s^-1     |
rad            | radian                            | 1                    | angle      |
sr             | steradian                         | 1                    | angle^2    |
b              | bit                               | 1                    | bit        | yes
B              | byte                              | 8                    | bit        | yes
KiB            |                                   | 8*1024               | bit        |
MiB            |                                   | 8*1024^2             | bit        |
GiB            |                                   | 8*1024^3             | bit        |
dB             | decibel                           | 1                    | decibel    |
% pct          | percent percentage                | 1/100                | percent    |
ppm            |                                   | 1/10^6               | percent    |
bps            |                                   | 1/10^4               | percent    |
BSA            |                                   | 1                    | bodysurface |
\\$ USD US\\$ $  | dollar buck                       | 1                    | USD        |
€ EUR          | euro                              | 1                    | EUR        |
£ GBP          |                                   | 1                    | GBP        |
¥ JPY          | yen                               | 1                    | JPY        |
CNY RMB        | yuan                              | 1                    | CNY        |
₹ INR Rs Rs.   | rupee                             | 1                    | INR        |
               | unitless dimensionless            | 1                    |            |
"""
PREFIXES = {"Y": 24, "Z": 21, "E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "d": -1, "c": -2}
PREFIXES |= {"m": -3, "μ": -6, "u": -6, "n": -9, "p": -12, "f": -15, "a": -18, "K": 3}
BYTE_PREFIXES, WITHOUT_CAPITAL_K = "kKMGT", set(PREFIXES) - {"K"}
PREFIX_NAMES = {"tera": 12, "giga": 9, "mega": 6, "kilo": 3, "hecto": 2, "deci": -1, "centi": -2, "milli": -3}
PREFIX_NAMES |= {"micro": -6, "nano": -9, "pico": -12, "femto": -15}

PHRASES = [  # many words, one unit; read before the table
    (re.compile(r"\\mu ?"), "μ"),
    (re.compile(r"\\Omega ?"), "Ω"),
    (re.compile(r"\\AA ?|\\r\{A\}"), "Å"),
    (re.compile(r"\^\\circ ?([CF])(?![A-Za-z])|\b(?:degrees?|deg\.?) ?([CF])\b"), r" deg\1\2 "),
    (re.compile(r"\^\\circ ?K\b"), " K "),
    (re.compile(r"(?:\b(?:degrees?|deg\.?)|\^\\circ) ?celsius\b|\bcelsius\b", re.I), " degC "),
    (re.compile(r"(?:\b(?:degrees?|deg\.?)|\^\\circ) ?fahrenheit\b|\bfahrenheit\b", re.I), " degF "),
    (re.compile(r"\^\\circ ?"), " deg "),
    (re.compile(r"\bmiles? per hour\b|\bmiles?/hour\b", re.I), "mph"),
    (re.compile(r"\blight[- ]years?\b", re.I), "ly"),
    (re.compile(r"\bnautical miles?\b", re.I), "nmi"),
    (re.compile(r"\bmm ?hg\b", re.I), "mmHg"),
    (re.compile(r"\bbasis points?\b|\bbp\b", re.I), "bps"),
    (re.compile(r"1\.73 ?m ?\^?\{?2\}?"), "BSA"),  # of the filtration rate of kidneys
    (re.compile(r"(?<=[A-Za-z])-(?=[A-Za-z])"), "·"),  # N-m, ft-lb
    (re.compile(r"\bmetric tons?\b", re.I), "t"),
    (re.compile(r"\bper ?cents?\b", re.I), "%"),
    (re.compile(r"\bU\.?S\.? dollars?\b", re.I), "USD"),
    (re.compile(r"\b(?:fl\.? ?oz|fluid ounces?)\b", re.I), "floz"),
    (re.compile(r"\bsq\.? (?=\w)", re.I), "square "),
    (re.compile(r"\bcu\.? (?=\w)", re.I), "cubic "),
]
PER_SECOND = re.compile(r"((?:.* )?[kcm]?)ms(\^\{?-\d\}?)$")
TOKEN = re.compile(
    r"\s*(\\cdot|\\times|\\\$|[A-Za-zμΩÅåö€£¥₹¢]+\.?|%|\^(?:-?\d|\{-?\d\}|\(-?\d\))|1(?=/)|[/*()·])|(\{-?\d\}|-?\d)(?!\d)"
)


class Unit(NamedTuple):
    r"""`dimension`: sorted (base, power) pairs; `factor` times `\pi` to the power `pi` = size in base units.

    `offset`: what is added after scaling, in kelvin (degrees Celsius and Fahrenheit).
    """

    dimension: tuple[tuple[str, int], ...]
    factor: Fraction
    pi: int = 0
    offset: Fraction = Fraction(0)

    def without_angle(self) -> tuple[tuple[str, int], ...]:
        return tuple(part for part in self.dimension if part[0] not in ("angle", "cycle"))

    def turns(self, base: str) -> int:
        """The power of "angle" or "cycle" in it."""
        return dict(self.dimension).get(base, 0)

    def in_radians(self) -> Unit:
        """With each cycle as an angle of 2 pi."""
        n = self.turns("cycle")
        return self._replace(factor=self.factor * Fraction(2) ** n, pi=self.pi + n)


def scaled(unit: Unit, power: int) -> Unit:
    return unit._replace(factor=unit.factor * Fraction(10) ** power)


def dimension_of(text: str) -> tuple[tuple[str, int], ...]:
    parts = [part.partition("^") for part in text.split()]
    return tuple(sorted((base, int(power or 1)) for base, _, power in parts))


def exact(text: str) -> Fraction:
    """`45359237/(16*10^8)` -> Fraction."""
    top, _, bottom = text.partition("/")
    result = Fraction(1)
    for part, sign in ((top, 1), (bottom.strip("()"), -1)):
        for factor in filter(None, part.split("*")):
            base, _, power = factor.partition("^")
            result *= Fraction(int(base)) ** (sign * int(power or 1))
    return result


def build() -> tuple[dict[str, Unit], dict[str, Unit], dict[str, Unit], dict[str, Unit]]:
    symbols, names, symbol_stems, name_stems = {}, {}, {}, {}
    for row in TABLE.strip().splitlines():
        symbol, name, factor, base, prefixed = (cell.strip() for cell in row.split("|"))
        unit = Unit(dimension_of(base), exact(factor))
        symbols |= dict.fromkeys(symbol.split(), unit)
        names |= dict.fromkeys(name.split(), unit)
        if prefixed:
            symbol_stems |= dict.fromkeys(symbol.split(), unit)
            name_stems |= dict.fromkeys(name.split(), unit)
    degree = Unit((("angle", 1),), Fraction(1, 180), pi=1)
    kelvin = (("K", 1),)
    symbols |= {"deg": degree, "degC": Unit(kelvin, Fraction(1), offset=Fraction("273.15"))}
    symbols |= {"degF": Unit(kelvin, Fraction(5, 9), offset=Fraction("459.67") * Fraction(5, 9))}
    symbols["floz"] = Unit((("m", 3),), Fraction(3785411784, 128 * 10**12))
    symbols["rpm"] = Unit((("angle", 1), ("s", -1)), Fraction(2, 60), pi=1)
    names |= {"degree": degree} | dict.fromkeys(
        ["revolution", "turn", "rotation"], Unit((("angle", 1),), Fraction(2), pi=1)
    )
    return symbols, names, symbol_stems, name_stems


SYMBOLS, NAMES, SYMBOL_STEMS, NAME_STEMS = build()
FOLDED = {symbol.lower(): unit for symbol, unit in SYMBOLS.items() if len(symbol) > 1}  # "KM", "Hrs"
FOLDED |= {f"k{stem}": scaled(SYMBOL_STEMS[stem], 3) for stem in "mg"}
FOLDED |= {f"{prefix}m": scaled(SYMBOL_STEMS["m"], power) for prefix, power in (("c", -2), ("m", -3))}
CENT = Fraction(1, 100)
ALSO = {  # words with a second reading
    "pound": Unit((("GBP", 1),), Fraction(1)),
    "¥": Unit((("CNY", 1),), Fraction(1)),
    "cent": Unit((("EUR", 1),), CENT),
    "penny": Unit((("GBP", 1),), CENT),
    "C": SYMBOLS["degC"],
    "F": SYMBOLS["degF"],
    "degree": SYMBOLS["degC"],
    "deg": SYMBOLS["degC"],
}
IN_SUMS = {  # what stands for a unit only beside another: 2h30m, 6'2", 12°30'15"
    "m": (NAMES["minute"],),
    "'": (NAMES["foot"], NAMES["degree"]._replace(factor=NAMES["degree"].factor / 60)),
    '"': (NAMES["inch"], NAMES["degree"]._replace(factor=NAMES["degree"].factor / 3600)),
}
IN_SUMS["''"] = IN_SUMS['"']
FINER = dict.fromkeys(["h", "hr", "hour", "hours"], NAMES["minute"])  # 1h30
FINER |= dict.fromkeys(["'", "ft", "foot", "feet"], NAMES["inch"])  # 5 foot 3
FINER["m"] = scaled(NAMES["meter"], -2)  # 1m80
NAMES |= dict.fromkeys(["cent", "penny"], Unit((("USD", 1),), CENT)) | {"pence": Unit((("GBP", 1),), CENT)}
NAMES["pennie"] = NAMES["penny"]
SYMBOLS["¢"] = NAMES["cent"]


@lru_cache(CACHED)
def read_unit(text: str) -> tuple[Unit, ...]:
    """The unit a canonical text names, with its other readings ("pounds"); () when it names none."""
    if not text or len(text) > 80 or (text[0].isdigit() and not text.startswith("1/")):
        return ()
    for pattern, replacement in PHRASES:
        text = pattern.sub(replacement, text)
    text = text.strip()
    single = one_unit(text)
    if single is not None:
        other = ALSO.get(text) or ALSO.get(singular(text.lower()))
        return (single, other) if other else (single,)
    readings = [text]
    if per_second := PER_SECOND.match(text):  # ms^{-1}: metres a second, or one by a millisecond
        readings.insert(0, f"{per_second[1] or ''}m s{per_second[2]}")
    try:
        return tuple(product_of_units(tokens_of(reading)) for reading in readings)
    except ValueError:
        return ()


def singular(name: str) -> str:
    return name[:-1] if name.endswith("s") and len(name) > 3 else name


@lru_cache(CACHED)
def one_unit(word: str) -> Unit | None:
    """A symbol, a name, or either with an SI prefix."""
    if word in SYMBOLS:
        return SYMBOLS[word]
    if word.lower() in FOLDED and word.isupper():
        return FOLDED[word.lower()]
    name = word.lower().rstrip(".")
    for form in (name, singular(name)):
        if len(form) > 2 and form in NAMES:
            return NAMES[form]
        for prefix, power in PREFIX_NAMES.items():
            if form.startswith(prefix) and form[len(prefix) :] in NAME_STEMS:
                return scaled(NAME_STEMS[form[len(prefix) :]], power)
    prefix, stem = PREFIXES.get(word[:1]), SYMBOL_STEMS.get(word[1:])
    usual = BYTE_PREFIXES if word[1:] in ("B", "b") else WITHOUT_CAPITAL_K
    if prefix is not None and stem is not None and word[0] in usual:
        return scaled(stem, prefix)
    return FOLDED.get(name)


def tokens_of(text: str) -> list[str]:
    tokens, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise ValueError("not a unit")
        tokens.append(match[1] or match[2])
        at = match.end()
    return tokens


def product_of_units(tokens: list[str]) -> Unit:
    """Units joined by space, `*`, `/`, "per"; what follows a slash stays below it, as in J/mol K."""
    parts: list[list] = []  # [unit, power]
    sign, next_power, at = 1, 1, 0
    while at < len(tokens):
        token, word, at = tokens[at], tokens[at].lower(), at + 1
        if token == "/" or word == "per":
            sign = -1
        elif word in ("square", "cubic"):
            next_power = 2 if word == "square" else 3
        elif word in ("squared", "cubed") or token[0] in "^{-" or (token[-1].isdigit() and token != "1"):
            if not parts:
                raise ValueError("a power without a unit")
            parts[-1][1] *= {"squared": 2, "cubed": 3}.get(word) or int(re.sub(r"[^-\d]", "", token))
        elif token not in ("*", "\\cdot", "\\times", "·", "1"):
            if token == "(":
                end = matching(tokens, at - 1)
                unit, at = product_of_units(tokens[at:end]), end + 1
            else:
                unit = one_unit(token)
            if unit is None:
                raise ValueError("not a unit")
            parts.append([unit, sign * next_power])
            next_power = 1
    if not parts or next_power != 1:
        raise ValueError("no unit")
    powers: dict[str, int] = {}
    for unit, power in parts:
        for base, n in unit.dimension:
            powers[base] = powers.get(base, 0) + n * power
    dimension = tuple(sorted((base, power) for base, power in powers.items() if power))
    factor = math.prod((unit.factor**power for unit, power in parts), start=Fraction(1))
    return Unit(dimension, factor, sum(unit.pi * power for unit, power in parts))


def matching(tokens: list[str], start: int) -> int:
    depth = 0
    for k in range(start, len(tokens)):
        depth += (tokens[k] == "(") - (tokens[k] == ")")
        if depth == 0:
            return k
    raise ValueError("an open bracket")
