"""Writes word_problems.jsonl: grade-school word problems with worked solutions, four grades of difficulty.

    python data/make_word_problems.py            rewrites data/word_problems.jsonl, byte for byte
    python data/make_word_problems.py other.jsonl

A template holds a text, its solution and five casts (the things, places and people of one problem each).
In a solution `[x = a * b]` is one step: it is computed exactly, bound to the name x and written out as
"6 * 7 = 42"; `p%` is p hundredths. The grade of a template is its number of steps. Numbers are drawn from
`numbers` until every result is clean (a whole number of at least 2, or at most two decimals for the names
listed in `money` and `decimal`) and no two numbers of a problem are equal, so that no step can be skipped by
luck. Each template has its own seeded generator, so adding one changes no other; draws use `random()` alone,
the one method Python promises to keep the same between versions.
"""

from __future__ import annotations

import json
import pathlib
import random
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

SEED = 20261129
LICENCE = "Apache-2.0"
GRADES = {1: "one-step", 2: "two-step", 3: "three-step", 4: "four-step"}
STEP = re.compile(r"\[(\w+) = (\w+%?) ([-+*/]) (\w+%?)\]")
OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("/")]


SHE = cells("Mia/Nora/Priya/Lucy/Elena/Grace/Amara/Hana/Zoe/Sofia/Ruth/Leila/Ivy/Carmen")
HE = cells("Ben/Omar/Leo/Kenji/Tom/Mateo/Sam/Felix/Hugo/Arjun/Noah/Karim/Paul/Victor")


@dataclass(frozen=True)
class Template:
    name: str
    text: str
    solution: str
    numbers: dict[str, Sequence[Fraction | int]]
    casts: list[dict[str, str]]
    ok: Callable[..., bool]
    money: frozenset[str]
    decimal: frozenset[str]

    @property
    def grade(self) -> int:
        return len(STEP.findall(self.solution))


TEMPLATES: list[Template] = []


def template(
    name: str,
    text: str,
    solution: str,
    numbers: dict[str, Sequence[Fraction | int]],
    casts: list[str],
    ok: Callable[..., bool] = lambda **_: True,
    money: str = "",
    decimal: str = "",
) -> None:
    """Adds a template. `casts` is a table: its first row names the slots, cells are parted by "/"."""
    slots, *rows = map(cells, casts)
    table = [dict(zip(slots, row, strict=True)) for row in rows]
    names = frozenset(money.split()), frozenset(decimal.split())
    TEMPLATES.append(Template(name, text, solution, numbers, table, ok, *names))


def span(low: int, high: int, step: int = 1) -> range:
    """low, low + step ... up to and including high."""
    return range(low, high + 1, step)


def cents(low: int, high: int, step: int) -> list[Fraction]:
    """Prices in dollars, from and to in cents."""
    return [Fraction(c, 100) for c in span(low, high, step)]


# --- one step ---

template(
    "get-more",
    "{name} has {a} {things} and gets {b} more {source}. How many {things} does {name} have now?",
    "{name} has [x = a + b] {things} now.",
    {"a": span(3, 15), "b": span(2, 9)},
    [
        "things / source",
        "marbles / from a friend",
        "stickers / at school",
        "stamps / from {his} uncle",
        "toy cars / for {his} birthday",
        "seashells / at the beach",
    ],
)
template(
    "take-away",
    "There are {a} {things} {place}. {takers} {b} of them. How many {things} are left {place}?",
    "There are [x = a - b] {things} left {place}.",
    {"a": span(8, 20), "b": span(2, 9)},
    [
        "things / place / takers",
        "apples / in the basket / The children eat",
        "eggs / in the fridge / The cook uses",
        "books / on the cart / Visitors borrow",
        "tickets / in the drawer / The clerk sells",
        "balloons / on the ceiling / The twins pop",
    ],
    ok=lambda x, **_: x >= 3,
)
template(
    "groups",
    "Each {box} holds {a} {things}. How many {things} do {b} full {boxes} hold?",
    "The {boxes} hold [x = a * b] {things}.",
    {"a": span(3, 10), "b": span(2, 6)},
    [
        "box / boxes / things",
        "box / boxes / pens",
        "tray / trays / muffins",
        "shelf / shelves / books",
        "vase / vases / roses",
        "wagon / wagons / passengers",
    ],
)
template(
    "share",
    "{name} shares {t} {things} equally among {n} {people}. How many {things} does each {person} get?",
    "Each {person} gets [x = t / n] {things}.",
    {"t": span(8, 48), "n": span(2, 6)},
    [
        "things / people / person",
        "grapes / friends / friend",
        "carrots / rabbits / rabbit",
        "worksheets / students / student",
        "cards / players / player",
        "crackers / cousins / cousin",
    ],
)
template(
    "two-prices",
    "{One} costs ${a} and {another} costs ${b}. How many dollars do they cost together?",
    "Together they cost [x = a + b] dollars.",
    {"a": span(6, 25), "b": span(2, 12)},
    [
        "One / another",
        "A backpack / a pencil case",
        "A lamp / a light bulb",
        "An umbrella / a rain hat",
        "A board game / a puzzle",
        "A tennis racket / a set of balls",
    ],
)
template(
    "spend",
    "{name} has ${a} and spends ${b} on {thing}. How many dollars does {he} have left?",
    "{name} has [x = a - b] dollars left.",
    {"a": span(10, 30), "b": span(3, 20)},
    [
        "thing",
        "a cinema visit",
        "a birthday present",
        "new paint brushes",
        "a train ticket",
        "a pair of gloves",
    ],
    ok=lambda a, b, **_: a - b >= 3,
)
template(
    "how-many-more",
    "{name} {did} {a} {things} and {other} {did} {b}. How many more {things} did {name} {do} than {other}?",
    "{name} {did} [x = a - b] more {things} than {other}.",
    {"a": span(8, 20), "b": span(3, 10)},
    [
        "did / do / things",
        "picked / pick / strawberries",
        "sold / sell / raffle tickets",
        "found / find / mushrooms",
        "baked / bake / cupcakes",
        "scored / score / points",
    ],
    ok=lambda a, b, **_: a - b >= 3,
)
template(
    "times-as-many",
    "{name} has {a} {things}. {other} has {k} times as many {things} as {name}. How many {things} does "
    "{other} have?",
    "{other} has [x = k * a] {things}.",
    {"a": span(3, 12), "k": span(3, 5)},
    ["things", "postcards", "goldfish", "comic books", "buttons", "coins"],
)
template(
    "steady-speed",
    "{One} {goes} {v} kilometers every hour. How many kilometers does it {go} in {h} hours?",
    "In {h} hours it {goes} [x = v * h] kilometers.",
    {"v": span(10, 80, 10), "h": span(2, 5)},
    [
        "One / goes / go",
        "A bus / drives / drive",
        "A ferry / sails / sail",
        "A train / travels / travel",
        "A drone / flies / fly",
        "A truck / covers / cover",
    ],
)
template(
    "rectangle-area",
    "{The} is a rectangle that is {a} meters long and {b} meters wide. What is its area in square meters?",
    "The area is [x = a * b] square meters.",
    {"a": span(4, 12), "b": span(2, 9)},
    ["The", "A vegetable garden", "The floor of a classroom", "A playground", "A stage", "A swimming pool"],
    ok=lambda a, b, **_: a > b,
)
template(
    "half-of-them",
    "There are {a} {people} {place}. Half of them {do}. How many {people} {do}?",
    "Half of {a} is [x = a / 2], so {x} {people} {do}.",
    {"a": span(8, 40, 2)},
    [
        "people / place / do",
        "students / in a class / walk to school",
        "guests / at a hotel / order breakfast",
        "members / of a music club / play the piano",
        "hikers / in a group / carry a map",
        "cyclists / in a race / wear a red helmet",
    ],
)
template(
    "small-percent",
    "{The} has {t} {things}. {p}% of them are {kind}. How many of the {things} are {kind}?",
    "{p}% of {t} is [x = p% * t].",
    {"t": span(10, 100, 10), "p": [10, 20, 50]},
    [
        "The / things / kind",
        "A parking lot / cars / white",
        "A library / atlases / new",
        "A farm / chickens / brown",
        "A theater / seats / reserved",
        "A florist / tulips / yellow",
    ],
    ok=lambda x, **_: x >= 2,
)
template(
    "hours-to-minutes",
    "{One} {lasts} {h} hours. How many minutes is that?",
    "One hour has 60 minutes, so this is [x = h * 60] minutes.",
    {"h": span(2, 8)},
    [
        "One / lasts",
        "A concert / lasts",
        "A night flight / takes",
        "A school trip / lasts",
        "A chess tournament / goes on for",
        "Drying the paint / takes",
    ],
)
template(
    "older-relative",
    "{name} is {a} years old. {His} {relative} is {b} years older than {name}. How old is {his} {relative}?",
    "{name}'s {relative} is [x = a + b] years old.",
    {"a": span(5, 12), "b": span(20, 40)},
    ["relative", "aunt", "neighbor", "coach", "uncle", "dentist"],
)
template(
    "still-needed",
    "{name} needs {a} {things} for {purpose}. {He} already has {b}. How many more {things} does {he} need?",
    "{name} needs [x = a - b] more {things}.",
    {"a": span(10, 30), "b": span(3, 20)},
    [
        "things / purpose",
        "chairs / a wedding",
        "beads / a necklace",
        "bricks / a low wall",
        "signatures / a petition",
        "tiles / a mosaic",
    ],
    ok=lambda a, b, **_: a - b >= 4,
)
template(
    "fill-packs",
    "A worker packs {t} {things} into {packs}. Each {pack} takes {n} {things}. How many {packs} are filled?",
    "The worker fills [x = t / n] {packs}.",
    {"t": span(12, 60), "n": span(3, 10)},
    [
        "things / packs / pack",
        "oranges / nets / net",
        "candles / boxes / box",
        "bottles / crates / crate",
        "tennis balls / tubes / tube",
        "batteries / packs / pack",
    ],
    ok=lambda x, **_: x >= 3,
)

# --- two steps ---

template(
    "packs-and-own",
    "{name} buys {a} {packs} of {things}. There are {b} {things} in each {pack}. {He} already had {c} "
    "{things} at home. How many {things} does {name} have now?",
    "The {packs} hold [x = a * b] {things}. With those at home there are [y = x + c].",
    {"a": span(3, 6), "b": span(4, 10), "c": span(5, 20)},
    [
        "packs / pack / things",
        "bags / bag / lemons",
        "packs / pack / markers",
        "boxes / box / tea bags",
        "rolls / roll / stickers",
        "sets / set / hooks",
    ],
)
template(
    "trays-sold",
    "{The} makes {a} {trays} of {things} with {b} {things} on each {tray}. By noon {c} of the {things} "
    "have been sold. How many {things} are left?",
    "There are [x = a * b] {things} at first. After the sale [y = x - c] are left.",
    {"a": span(3, 8), "b": span(5, 12), "c": span(8, 50)},
    [
        "The / trays / tray / things",
        "A bakery / trays / tray / rolls",
        "A school kitchen / platters / platter / sandwiches",
        "A snack bar / trays / tray / waffles",
        "A sweet shop / sheets / sheet / caramels",
        "A tea house / plates / plate / scones",
    ],
    ok=lambda y, **_: y >= 4,
)
template(
    "several-and-one",
    "{One} costs ${p} and {another} costs ${d}. How many dollars do {n} {many} and one {single} cost "
    "altogether?",
    "The {many} cost [x = n * p] dollars. With the {single} that makes [y = x + d] dollars.",
    {"p": span(3, 12), "d": span(2, 9), "n": span(2, 6)},
    [
        "One / many / another / single",
        "A ticket / tickets / a program / program",
        "A plant / plants / a watering can / watering can",
        "A sandwich / sandwiches / a juice / juice",
        "A chair / chairs / a cushion / cushion",
        "A towel / towels / a bar of soap / bar of soap",
    ],
)
template(
    "change-back",
    "{name} buys {n} {things} for ${p} each and pays with a ${B} bill. How many dollars does {he} get back?",
    "The {things} cost [x = n * p] dollars. {name} gets back [y = B - x] dollars.",
    {"n": span(2, 6), "p": cents(150, 800, 50), "B": [10, 20, 50]},
    ["things", "notebooks", "ice creams", "flower pots", "museum tickets", "magazines"],
    ok=lambda x, B, **_: B / 2 < x < B,
    money="p x y",
)
template(
    "keep-some",
    "{name} has {t} {things}. {He} keeps {k} and shares the rest equally among {n} {people}. How many "
    "{things} does each {person} get?",
    "There are [x = t - k] {things} to share. Each {person} gets [y = x / n] {things}.",
    {"t": span(20, 60), "k": span(4, 15), "n": span(3, 6)},
    [
        "things / people / person",
        "plums / neighbors / neighbor",
        "beads / children / child",
        "trading cards / classmates / classmate",
        "walnuts / squirrels / squirrel",
        "pencils / students / student",
    ],
    ok=lambda y, **_: y >= 3,
)
template(
    "more-then-total",
    "{name} {did} {a} {things}. {other} {did} {b} more {things} than {name}. How many {things} did the two "
    "of them {do} in total?",
    "{other} {did} [x = a + b] {things}. Together they {did} [y = a + x] {things}.",
    {"a": span(8, 30), "b": span(3, 15)},
    [
        "did / do / things",
        "folded / fold / paper cranes",
        "watered / water / plants",
        "washed / wash / windows",
        "painted / paint / fence posts",
        "counted / count / birds",
    ],
)
template(
    "times-then-total",
    "On Monday {the} {did} {a} {things}, and on Tuesday {k} times as many. How many {things} did {it} {do} "
    "on the two days together?",
    "On Tuesday it was [x = k * a] {things}. On both days together it was [y = a + x].",
    {"a": span(5, 20), "k": span(3, 5)},
    [
        "the / did / do / things / it",
        "a kiosk / sold / sell / newspapers / it",
        "a clinic / treated / treat / patients / it",
        "a print shop / printed / print / posters / it",
        "a garage / repaired / repair / bicycles / it",
        "a post office / delivered / deliver / parcels / it",
    ],
)
template(
    "part-of-group",
    "Of the {t} {people} {place}, {m}/{d} {do}. How many {people} is that?",
    "One of {d} equal parts is [x = t / d] {people}. So {m} parts are [y = x * m] {people}.",
    {"t": span(12, 60), "d": span(3, 6), "m": [2, 3, 4, 5]},
    [
        "people / place / do",
        "members / of a sports club / play tennis",
        "workers / in a factory / come by bus",
        "visitors / in a museum / buy a guidebook",
        "singers / in a choir / read music",
        "voters / in a village / vote by mail",
    ],
    ok=lambda m, d, **_: m < d and Fraction(m, d).denominator == d,
)
template(
    "sale-price",
    "{One} costs ${a}. In a sale its price is reduced by {p}%. What is the sale price in dollars?",
    "The reduction is [x = p% * a] dollars. The sale price is [y = a - x] dollars.",
    {"a": span(20, 120, 10), "p": [10, 20, 25, 30, 40]},
    ["One", "A winter coat", "A bicycle helmet", "A coffee machine", "A suitcase", "A desk"],
    money="x y",
)
template(
    "machine-rate",
    "{The} {does} {t} {things} in {h} hours at a steady pace. How many {things} does it {do} in {k} hours?",
    "In one hour it {does} [x = t / h] {things}. In {k} hours it {does} [y = x * k] {things}.",
    {"t": span(20, 240, 5), "h": span(2, 6), "k": span(3, 10)},
    [
        "The / does / do / things",
        "A machine / fills / fill / jars",
        "A robot / welds / weld / frames",
        "A press / cuts / cut / lids",
        "A mill / grinds / grind / sacks of corn",
        "A scanner / reads / read / forms",
    ],
    ok=lambda h, k, **_: k % h,
)
template(
    "rectangle-border",
    "{The} is a rectangle {a} {unit} long and {b} {unit} wide. How many {unit} of {border} go once around "
    "it?",
    "One long and one short side measure [x = a + b] {unit}. All four sides measure [y = 2 * x] {unit}.",
    {"a": span(8, 40), "b": span(4, 25)},
    [
        "The / unit / border",
        "A sheep pasture / meters / fence",
        "A tablecloth / inches / lace",
        "A poster / centimeters / tape",
        "A flower bed / feet / edging",
        "A dance floor / meters / light strip",
    ],
    ok=lambda a, b, **_: a > b,
)
template(
    "wages",
    "{name} works as a {job} and earns ${w} an hour. {He} works {h} hours a day. How many dollars does "
    "{he} earn in {d} days?",
    "In one day {name} earns [x = w * h] dollars. In {d} days {he} earns [y = x * d] dollars.",
    {"w": span(10, 20), "h": span(3, 8), "d": span(2, 5)},
    ["job", "gardener", "cashier", "lifeguard", "driver", "painter"],
)
template(
    "saving-up",
    "{name} wants to buy {thing} for ${c}. {He} has ${s} and saves ${w} every week. After how many weeks "
    "does {he} have exactly enough money?",
    "{name} still needs [x = c - s] dollars. That takes [y = x / w] weeks.",
    {"c": span(40, 160, 5), "s": span(10, 60), "w": span(5, 15)},
    ["thing", "a guitar", "a tent", "a camera", "a skateboard", "a microscope"],
    ok=lambda y, **_: 4 <= y <= 20,
)
template(
    "dozens",
    "{name} {gets} {d} dozen {things}. {b} of them {fail}. How many {things} are still {good}?",
    "{d} dozen are [x = d * 12] {things}. So [y = x - b] are still {good}.",
    {"d": span(2, 8), "b": span(3, 15)},
    [
        "gets / things / fail / good",
        "collects / eggs / break / whole",
        "picks / peaches / rot / fresh",
        "cuts / roses / wilt / fresh",
        "buys / light bulbs / burn out / working",
        "blows up / balloons / burst / full of air",
    ],
    ok=lambda y, **_: y >= 10,
)
template(
    "cut-pieces",
    "{The} is {m} meters long. {name} cuts it into pieces of {c} centimeters, with nothing left over. How "
    "many pieces does {he} get?",
    "{m} meters are [x = m * 100] centimeters. That gives [y = x / c] pieces.",
    {"m": span(2, 9), "c": [10, 15, 20, 25, 30, 40, 50, 60]},
    ["The", "A ribbon", "A wooden board", "A copper wire", "A garden hose", "A strip of leather"],
    ok=lambda y, **_: y >= 5,
)
template(
    "off-and-on",
    "{The} leaves with {a} passengers. At the first {stop} {b} passengers get off and {c} get on. How many "
    "passengers are on board after that?",
    "After some get off there are [x = a - b] passengers. Then there are [y = x + c].",
    {"a": span(30, 80), "b": span(5, 20), "c": span(4, 18)},
    [
        "The / stop",
        "A tram / stop",
        "A night train / station",
        "A ferry / island",
        "A river boat / pier",
        "A subway train / stop",
    ],
    ok=lambda a, b, **_: a > 2 * b,
)

# --- three steps ---

template(
    "two-kinds",
    "{name} buys {a} {things} for ${p} each and {b} {others} for ${q} each. How many dollars does {he} pay "
    "in all?",
    "The {things} cost [x = a * p] dollars. The {others} cost [y = b * q] dollars. In all {name} pays [z = "
    "x + y] dollars.",
    {"a": span(2, 8), "b": span(2, 8), "p": cents(75, 450, 25), "q": cents(125, 775, 25)},
    [
        "things / others",
        "croissants / coffees",
        "greeting cards / pens",
        "tomato plants / bags of soil",
        "tubes of paint / canvases",
        "bagels / jars of jam",
    ],
    ok=lambda p, q, **_: p.denominator > 1 and q.denominator > 1,
    money="p q x y z",
)
template(
    "classes-boxes",
    "{The} has {a} {groups} with {b} {people} each. Every {person} gets {c} {things}. The {things} come in "
    "boxes of {d}. How many full boxes are needed?",
    "There are [x = a * b] {people}. They get [y = x * c] {things}. That takes [z = y / d] boxes.",
    {"a": span(3, 8), "b": span(10, 24), "c": span(2, 6), "d": [10, 12, 15, 18, 20, 24, 25, 30]},
    [
        "The / groups / people / person / things",
        "A school / classes / students / student / pencils",
        "A summer camp / cabins / campers / camper / badges",
        "A company / teams / employees / employee / pens",
        "A festival / choirs / singers / singer / candles",
        "A tournament / squads / players / player / wristbands",
    ],
    ok=lambda z, **_: z >= 6,
)
template(
    "tip-and-share",
    "{Friends} {eat} for ${m}. They add a tip of {p}% and share the whole cost equally among the {n} of "
    "them. How many dollars does each of them pay?",
    "The tip is [x = p% * m] dollars. With the tip the cost is [y = m + x] dollars. Each of them pays [z = "
    "y / n] dollars.",
    {"m": span(40, 140, 10), "p": [10, 15, 20, 25], "n": span(3, 6)},
    [
        "Friends / eat",
        "Some friends / have dinner",
        "Some tourists / eat pizza",
        "Some colleagues / have lunch",
        "Some musicians / eat tacos",
        "Some students / have pancakes",
    ],
    money="x y z",
)
template(
    "third-person",
    "{name} has {a} {things}. {other} has {k} times as many as {name}, and {third} has {d} fewer than "
    "{other}. How many more {things} does {third} have than {name}?",
    "{other} has [x = k * a] {things}. {third} has [y = x - d]. That is [z = y - a] more than {name} has.",
    {"a": span(8, 30), "k": span(3, 5), "d": span(5, 20)},
    ["things", "football cards", "books", "foreign coins", "toy soldiers", "records"],
    ok=lambda z, **_: z >= 6,
)
template(
    "part-then-days",
    "{One} has {t} {units}. On the first day {name} {does} 1/{d} of them. {He} {does} the rest in {n} "
    "days, the same number each day. How many {units} does {he} {do} on each of those {n} days?",
    "On the first day it is [x = t / d] {units}. Then [y = t - x] {units} remain. On each of the {n} days "
    "it is [z = y / n] {units}.",
    {"t": span(60, 300, 2), "d": span(3, 6), "n": span(4, 9)},
    [
        "One / units / does / do",
        "A novel / pages / reads / read",
        "A field / rows of potatoes / digs up / dig up",
        "An exercise book / problems / solves / solve",
        "A document / lines / translates / translate",
        "A fence / boards / paints / paint",
    ],
)
template(
    "two-speeds",
    "{name} {goes} for {h} hours at {v} kilometers an hour and then for {k} hours at {u} kilometers an "
    "hour. How many kilometers does {he} {go} altogether?",
    "The first part is [x = h * v] kilometers. The second part is [y = k * u] kilometers. Altogether it is "
    "[z = x + y] kilometers.",
    {"h": span(2, 5), "v": span(40, 95, 5), "k": span(2, 5), "u": span(30, 85, 5)},
    [
        "goes / go",
        "drives / drive",
        "rides a motorcycle / ride",
        "travels by train / travel",
        "drives a camper / drive",
        "drives a taxi / drive",
    ],
    ok=lambda v, u, **_: abs(v - u) > 8,
)
template(
    "stall-profit",
    "{name} sells {n} {things} at a market for ${p} each. The supplies cost ${c} and the stall cost ${r}. "
    "How many dollars of profit does {he} make?",
    "The sales bring [x = n * p] dollars. After the supplies [y = x - c] dollars remain. After the stall "
    "the profit is [z = y - r] dollars.",
    {"n": span(10, 40), "p": cents(250, 1050, 50), "c": span(20, 90), "r": span(10, 45)},
    ["things", "candles", "wooden spoons", "knitted hats", "jars of honey", "clay mugs"],
    ok=lambda z, **_: z >= 20,
    money="p x y z",
)
template(
    "average-of-three",
    "{name} {measures} {a}, {b} and {c} {units} on three {days}. What is the average number of {units} per "
    "{day}?",
    "The first two make [x = a + b]. All three make [y = x + c]. The average is [z = y / 3] {units}.",
    {"a": span(20, 90), "b": span(20, 90), "c": span(20, 90)},
    [
        "measures / units / days / day",
        "scores / points / evenings / evening",
        "walks for / minutes / mornings / morning",
        "sells / newspapers / days / day",
        "types / pages / weekends / weekend",
        "swims / lengths / afternoons / afternoon",
    ],
)
template(
    "filling-with-leak",
    "{The} holds {t} liters and already contains {s} liters. A pipe adds {a} liters a minute while {b} "
    "liters a minute {leak}. After how many minutes is it full?",
    "There is room for [x = t - s] liters. Each minute [y = a - b] liters are gained. It is full after [z "
    "= x / y] minutes.",
    {"t": span(100, 500, 10), "s": span(20, 100, 5), "a": span(10, 30), "b": span(2, 10)},
    [
        "The / leak",
        "A tank / leak out",
        "A garden pond / seep away",
        "A water tower / flow to the houses",
        "A fish pool / drain off",
        "A cistern on a farm / run out through a crack",
    ],
    ok=lambda z, **_: 8 <= z <= 60,
)
template(
    "pay-minus-rent",
    "{name} earns ${w} an hour. This month {he} works {h} hours on each of {d} days. Of this pay {he} "
    "spends ${s} on {thing}. How many dollars of the pay are left?",
    "One day brings [x = w * h] dollars. The month brings [y = x * d] dollars. After the spending [z = y - "
    "s] dollars are left.",
    {"w": span(12, 25), "h": span(4, 8), "d": span(8, 20), "s": span(150, 650, 10)},
    ["thing", "rent", "a language course", "car repairs", "furniture", "a holiday"],
    ok=lambda z, **_: z >= 200,
)
template(
    "paint-the-wall",
    "{The} is {a} meters wide and {b} meters high. {Hole} {c} square meters of it, which stay unpainted. "
    "One can of paint is enough for {k} square meters. How many cans are needed to paint the rest once?",
    "The whole area is [x = a * b] square meters. To be painted are [y = x - c] square meters. That takes "
    "[z = y / k] cans.",
    {"a": span(8, 20), "b": span(3, 9), "c": span(4, 25), "k": span(4, 10)},
    [
        "The / Hole",
        "A house wall / Windows take up",
        "A barn wall / A gate takes up",
        "The front of a shop / Glass covers",
        "A gym wall / Mirrors cover",
        "A garage wall / Doors take up",
    ],
    ok=lambda x, c, z, **_: c * 3 < x and z >= 4,
)
template(
    "fence-cost",
    "A rectangular {place} is {a} meters long and {b} meters wide. {name} puts a {border} all the way "
    "around it. One meter of the {border} costs ${p}. How many dollars does the {border} cost?",
    "Length and width make [x = a + b] meters. The whole border is [y = 2 * x] meters. It costs [z = y * "
    "p] dollars.",
    {"a": span(10, 40), "b": span(5, 25), "p": cents(250, 950, 50)},
    [
        "place / border",
        "orchard / fence",
        "terrace / railing",
        "meadow / hedge",
        "playground / safety net",
        "courtyard / stone border",
    ],
    ok=lambda a, b, p, **_: a > b and p.denominator > 1,
    money="p z",
)
template(
    "laps-to-km",
    "A {track} is {m} meters long. {name} {goes} {n} laps of it each day. How many kilometers does {he} "
    "{go} in {d} days?",
    "In a day {name} covers [x = n * m] meters. In {d} days it is [y = x * d] meters. That is [z = y / "
    "1000] kilometers.",
    {"m": span(200, 800, 50), "n": span(4, 12), "d": span(3, 7)},
    [
        "track / goes / go",
        "running track / runs / run",
        "forest loop / walks / walk",
        "skating track / skates / skate",
        "cycling track / rides / ride",
        "ski trail / skis / ski",
    ],
    decimal="z",
)
template(
    "recipe",
    "A {dish} for {a} people needs {g} grams of {stuff}. {name} wants to make it for {b} people and has "
    "{h} grams of {stuff} at home. How many more grams of {stuff} does {he} need?",
    "One person needs [x = g / a] grams. For {b} people it is [y = x * b] grams. {name} needs [z = y - h] "
    "more grams.",
    {"a": span(3, 8), "g": span(120, 720, 10), "b": span(9, 20), "h": span(50, 300, 10)},
    ["dish / stuff", "curry / rice", "cake / flour", "soup / lentils", "salad / feta cheese", "stew / beans"],
    ok=lambda x, y, h, **_: x <= 150 and y > 2 * h,
)
template(
    "ages-later",
    "{name} is {a} years old. {His} {relative} is {k} times as old as {he} is, and {his} {second} is {d} "
    "years younger than {his} {relative}. How old will {his} {second} be in {n} years?",
    "The {relative} is [x = k * a] years old. The {second} is [y = x - d] years old. In {n} years the "
    "{second} will be [z = y + n] years old.",
    {"a": span(7, 16), "k": span(3, 5), "d": span(3, 17), "n": span(4, 18)},
    [
        "relative / second",
        "father / mother",
        "aunt / uncle",
        "piano teacher / swimming teacher",
        "mother / stepfather",
        "uncle / aunt",
    ],
    ok=lambda x, y, **_: x <= 60 and y >= 24,
)
template(
    "bag-of-colors",
    "{The} holds {t} {things}. {p}% of them are {red}, 1/{d} of the others are {blue}, and all remaining "
    "ones are {green}. How many {things} are {blue}?",
    "[x = p% * t] {things} are {red}. The others are [y = t - x]. Of these [z = y / d] are {blue}.",
    {"t": span(40, 240, 20), "p": [15, 20, 25, 35, 40, 45, 60], "d": span(3, 6)},
    [
        "The / things / red / blue / green",
        "A bag / marbles / red / blue / green",
        "A warehouse / boxes / full / half full / empty",
        "A greenhouse / tulips / yellow / pink / white",
        "A ship / containers / steel / aluminum / wooden",
        "An archive / files / old / damaged / new",
    ],
    ok=lambda z, **_: z >= 6,
)

# --- four steps ---

template(
    "two-kinds-change",
    "{name} buys {a} {things} for ${p} each and {b} {others} for ${q} each. {He} pays with ${B} in cash. "
    "How many dollars does {he} get back?",
    "The {things} cost [x = a * p] dollars. The {others} cost [y = b * q] dollars. In all {name} pays [z = "
    "x + y] dollars. {He} gets back [w = B - z] dollars.",
    {"a": span(2, 7), "b": span(2, 6), "p": cents(75, 375, 25), "q": cents(125, 675, 25), "B": [20, 50]},
    [
        "things / others",
        "postcards / calendars",
        "paint brushes / paint rollers",
        "pretzels / lemonades",
        "exercise books / fountain pens",
        "dog biscuits / chew toys",
    ],
    ok=lambda p, q, w, **_: p.denominator > 1 and q.denominator > 1 and 2 < w < 40,
    money="p q x y z w",
)
template(
    "rest-cheaper",
    "{The} has {n} {things}. It sells {a} of them for ${p} each and all the others for ${q} each. How many "
    "dollars does it take in altogether?",
    "The first ones bring [x = a * p] dollars. There are [r = n - a] others. They bring [y = r * q] "
    "dollars. Altogether it takes in [z = x + y] dollars.",
    {"n": span(40, 100), "a": span(15, 60), "p": cents(450, 1250, 50), "q": cents(150, 550, 50)},
    [
        "The / things",
        "A bookshop / calendars",
        "A fruit stand / melons",
        "A toy store / kites",
        "A garden center / young trees",
        "A cinema / seats",
    ],
    ok=lambda p, q, r, **_: p > 2 * q and r >= 15,
    money="p q x y z",
)
template(
    "three-people-total",
    "{name} {did} {a} {things}. {other} {did} {k} times as many as {name}, and {third} {did} {d} fewer "
    "than {other}. How many {things} did the three of them {do} in total?",
    "{other} {did} [x = k * a] {things}. {third} {did} [y = x - d]. {name} and {other} together {did} [z = "
    "a + x]. All three {did} [w = z + y].",
    {"a": span(8, 30), "k": span(3, 5), "d": span(5, 20)},
    [
        "did / do / things",
        "collected / collect / bottles",
        "planted / plant / trees",
        "wrote / write / letters",
        "laid / lay / paving stones",
        "sorted / sort / parcels",
    ],
    ok=lambda d, x, **_: d * 2 < x,
)
template(
    "trip-cost",
    "{n} {kids} and {m} {adults} go {where}. Each of the {kids} needs a ticket for ${p}, and each of the "
    "{adults} one for ${q}. The {kids} share the cost of all the tickets equally. How many dollars does "
    "each of the {kids} pay?",
    "The tickets of the {kids} cost [x = n * p] dollars. Those of the {adults} cost [y = m * q] dollars. "
    "All tickets cost [z = x + y] dollars. Each of the {kids} pays [w = z / n] dollars.",
    {"n": span(10, 32), "m": span(2, 6), "p": span(5, 14), "q": span(10, 25)},
    [
        "kids / adults / where",
        "students / teachers / to the zoo",
        "scouts / leaders / to a water park",
        "campers / counselors / on a boat tour",
        "dancers / coaches / to a musical",
        "children / helpers / to a planetarium",
    ],
    ok=lambda p, q, **_: q > p,
    money="w",
)
template(
    "percent-savings",
    "{name} earns ${s} a month and puts {p}% of it into a savings account that holds ${h} at the start. "
    "After {n} months {he} pays ${c} out of the account for {thing}. How many dollars are then left in the "
    "account?",
    "Each month {name} saves [x = p% * s] dollars. In {n} months {he} saves [y = x * n] dollars. With the "
    "money from the start the account holds [z = y + h] dollars. After the purchase [w = z - c] dollars "
    "are left.",
    {
        "s": span(1000, 3000, 100),
        "p": [5, 8, 10, 15, 20],
        "n": span(4, 12),
        "h": span(100, 600, 50),
        "c": span(200, 1500, 10),
    },
    ["thing", "a sewing machine", "a laptop", "a used scooter", "a washing machine", "a sofa"],
    ok=lambda w, c, y, **_: 50 <= w <= 1500 and c < y,
    money="x y z w",
)
template(
    "trip-time",
    "{name} drives {D} kilometers to {place}. {He} drives the first {h} hours at {v} kilometers an hour "
    "and the rest of the way at {u} kilometers an hour. How many hours does the whole drive take?",
    "In the first part {name} covers [x = h * v] kilometers. Then [y = D - x] kilometers remain. They take "
    "[z = y / u] hours. The whole drive takes [w = h + z] hours.",
    {"D": span(220, 780, 5), "h": span(2, 5), "v": span(45, 95, 5), "u": span(35, 80, 5)},
    ["place", "the seaside", "a wedding", "a ski resort", "an airport", "a conference"],
    ok=lambda w, **_: w <= 12,
)
template(
    "two-pumps",
    "{The} takes {T} liters. Two pumps start to fill it when it is empty: the first brings {a} liters a "
    "minute, the second {b} liters a minute. After {t} minutes the second pump breaks down. How many more "
    "minutes does the first pump need to fill it?",
    "Together the pumps bring [x = a + b] liters a minute. In {t} minutes that is [y = x * t] liters. Then "
    "[z = T - y] liters are missing. The first pump needs [w = z / a] more minutes.",
    {"T": span(300, 1200, 20), "a": span(10, 30), "b": span(8, 25), "t": span(5, 15)},
    ["The", "A swimming pool", "A fire truck", "An oil tank", "An aquarium at the zoo", "A milk truck"],
    ok=lambda w, **_: 5 <= w <= 60,
)
template(
    "tiling",
    "{name} covers a {place} that is {a} meters long and {b} meters wide with {tiles}. It takes {k} "
    "{tiles} to cover one square meter. The {tiles} are sold in boxes of {n}, and a box costs ${p}. How "
    "many dollars do the {tiles} cost?",
    "The area is [x = a * b] square meters. That takes [y = x * k] {tiles}. They fill [z = y / n] boxes. "
    "The boxes cost [w = z * p] dollars.",
    {
        "a": span(5, 14),
        "b": span(3, 9),
        "k": [4, 5, 6, 8, 9],
        "n": [10, 12, 15, 16, 18, 20, 24],
        "p": span(9, 32),
    },
    [
        "place / tiles",
        "restaurant floor / tiles",
        "terrace / stone slabs",
        "sports hall / rubber mats",
        "flat roof / shingles",
        "hallway / cork panels",
    ],
    ok=lambda a, b, z, **_: a > b and z >= 5,
)
template(
    "overtime",
    "{name} works {h} hours this week as {job}. For the first {f} hours {he} earns ${w} an hour and for "
    "every hour after that ${v} an hour. How many dollars does {he} earn this week?",
    "{name} works [x = h - f] hours of overtime. The first {f} hours bring [y = f * w] dollars. The "
    "overtime brings [z = x * v] dollars. In total {he} earns [s = y + z] dollars.",
    {"h": span(42, 58), "f": [35, 38, 40], "w": cents(1350, 2850, 50), "v": cents(1850, 4250, 50)},
    ["job", "a nurse", "an electrician", "a baker", "a security guard", "an engineer"],
    ok=lambda x, w, v, **_: 4 <= x <= 18 and w * Fraction(5, 4) < v < 2 * w,
    money="w v y z s",
)
template(
    "lawn-around",
    "A rectangular {place} is {a} meters long and {b} meters wide. In it lies a rectangular {inner} of {c} "
    "meters by {d} meters. The rest is covered with {cover}, which costs ${p} a square meter. How many "
    "dollars does the {cover} cost?",
    "The {place} has [x = a * b] square meters. The {inner} has [y = c * d] square meters. The rest has [z "
    "= x - y] square meters. The {cover} costs [w = z * p] dollars.",
    {"a": span(12, 30), "b": span(8, 20), "c": span(3, 8), "d": span(2, 6), "p": cents(250, 950, 50)},
    [
        "place / inner / cover",
        "garden / pond / grass",
        "courtyard / sandpit / gravel",
        "park / fountain basin / turf",
        "hall / stage / carpet",
        "plot of land / house / bark mulch",
    ],
    ok=lambda a, b, c, d, **_: a > b and c > d,
    money="p w",
)
template(
    "fourth-result",
    "{name} wants an average of {m} {units} over four {rounds}. In the first three {he} {gets} {a}, {b} "
    "and {c} {units}. How many {units} does {he} need in the fourth?",
    "Four {rounds} need [x = m * 4] {units} in total. The first two made [y = a + b]. The first three made "
    "[z = y + c]. In the fourth {name} needs [w = x - z] {units}.",
    {"m": span(40, 80), "a": span(30, 90), "b": span(30, 90), "c": span(30, 90)},
    [
        "units / rounds / gets",
        "points / tests / gets",
        "sit-ups / training sessions / does",
        "points / rounds of darts / scores",
        "sales / months / makes",
        "pages / weeks / reads",
    ],
    ok=lambda w, **_: 30 <= w <= 100,
)
template(
    "up-and-down",
    "{One} cost ${a}. First the price went up by {p}%. Later the new price was cut by {q}%. What is the "
    "price in dollars after both changes?",
    "The rise is [x = p% * a] dollars. The new price is [y = a + x] dollars. The cut is [z = q% * y] "
    "dollars. The final price is [w = y - z] dollars.",
    {"a": span(80, 600, 20), "p": [10, 15, 20, 25, 30, 40], "q": [5, 10, 15, 20, 25, 30]},
    ["One", "A smartwatch", "A sailing course", "A garden shed", "An armchair", "A violin"],
    money="x y z w",
)
template(
    "party-boxes",
    "{name} expects {n} guests at {event} and plans {k} {things} for each of them. {He} already has {h} "
    "{things}. The {things} are sold in packs of {b}, and a pack costs ${p}. How many dollars must {name} "
    "still spend?",
    "The guests need [x = n * k] {things}. So [y = x - h] {things} are missing. They fill [z = y / b] "
    "packs. The packs cost [w = z * p] dollars.",
    {
        "n": span(12, 40),
        "k": span(2, 4),
        "h": span(5, 30),
        "b": [6, 8, 9, 10, 12, 15],
        "p": cents(225, 775, 25),
    },
    [
        "event / things",
        "a birthday party / juice boxes",
        "a street festival / sausages",
        "a wedding / macarons",
        "a housewarming / spring rolls",
        "a chess tournament / water bottles",
    ],
    ok=lambda z, p, **_: z >= 4 and p.denominator > 1,
    money="p w",
)
template(
    "two-fractions",
    "{The} starts with {t} {things}. On Monday 1/{d} of them {go}, and on Tuesday 1/{e} of the remaining "
    "{things} {go}. How many {things} are left after Tuesday?",
    "On Monday [x = t / d] {things} {go}. Then [y = t - x] remain. On Tuesday [z = y / e] {things} {go}. "
    "In the end [w = y - z] are left.",
    {"t": span(60, 400, 4), "d": span(3, 8), "e": span(3, 8)},
    [
        "The / things / go",
        "A warehouse / pallets / are shipped",
        "A blood bank / units / are used",
        "A shop / lottery tickets / are sold",
        "A nursery / seedlings / are planted out",
        "A library / new books / are lent out",
    ],
)
template(
    "legs",
    "On a farm there are {a} {cows} and {k} times as many {hens}. The farmer also owns {n} tractors. How "
    "many legs do the {cows} and {hens} have altogether?",
    "There are [x = k * a] {hens}. The {cows} have [y = a * 4] legs. The {hens} have [z = x * 2] legs. "
    "Altogether that makes [w = y + z] legs.",
    {"a": span(6, 28), "k": span(3, 6), "n": span(2, 5)},
    ["cows / hens", "cows / hens", "goats / ducks", "sheep / geese", "pigs / turkeys", "horses / chickens"],
)
template(
    "fuel-cost",
    "{name} drives from {here} to {there} and back. The distance is {m} kilometers each way. {His} {car} "
    "uses {c} liters of fuel per 100 kilometers, and a liter costs ${p}. How many dollars does the fuel "
    "cost?",
    "Both ways are [x = 2 * m] kilometers. That is [y = x / 100] times 100 kilometers. The {car} needs [z "
    "= y * c] liters. The fuel costs [w = z * p] dollars.",
    {"m": span(75, 450, 25), "c": span(5, 14), "p": cents(120, 220, 10)},
    [
        "here / there / car",
        "home / the coast / car",
        "the office / a trade fair / van",
        "the village / the capital / pickup truck",
        "the farm / the cattle market / truck",
        "the station / the mountains / minibus",
    ],
    ok=lambda m, p, **_: m % 50 and p.denominator > 1,
    money="p w",
    decimal="y z",
)


def show(value: Fraction, money: bool) -> str:
    """42, 2.5; money that is not whole has both cents: 2.50."""
    if value.denominator == 1:
        return str(value)
    exact = Decimal(value.numerator) / value.denominator
    return f"{exact:.2f}" if money else str(exact)


def pick(rng: random.Random, options: Sequence):
    return options[int(rng.random() * len(options))]


def results(one: Template, drawn: dict[str, Fraction]) -> dict[str, Fraction] | None:
    """The drawn numbers with every step's result, or None when one is not clean or two are equal."""
    values = dict(drawn)
    for name, left, sign, right in STEP.findall(one.solution):
        value = OPERATIONS[sign](operand(values, left), operand(values, right))
        if name in one.money or name in one.decimal:  # never 1: "1 dollars"
            clean = value > 0 and value != 1 and (value * 100).denominator == 1
        else:
            clean = value >= 2 and value.denominator == 1
        if not clean:
            return None
        values[name] = value
    return values if len(set(values.values())) == len(values) else None


def operand(values: dict[str, Fraction], token: str) -> Fraction:
    bare = token.rstrip("%")
    value = Fraction(bare) if bare.isdigit() else values[bare]
    return value / 100 if token.endswith("%") else value


def draw(one: Template, rng: random.Random) -> dict[str, Fraction]:
    for _ in range(1_000_000):
        values = results(one, {name: Fraction(pick(rng, pool)) for name, pool in one.numbers.items()})
        if values is not None and one.ok(**values):
            return values
    raise RuntimeError(f"template {one.name!r}: no numbers fit")


def people(rng: random.Random) -> dict[str, str]:
    """Three different first names, and the pronouns of the first."""
    names: list[str] = []
    while len(names) < 3:
        name = pick(rng, SHE + HE)
        if name not in names:
            names.append(name)
    he, his = ("she", "her") if names[0] in SHE else ("he", "his")
    who = {"name": names[0], "other": names[1], "third": names[2]}
    return who | {"he": he, "He": he.capitalize(), "his": his, "His": his.capitalize()}


def write_out(one: Template, cast: dict[str, str], values: dict[str, Fraction], who: dict[str, str]) -> dict:
    shown = {name: show(value, name in one.money) for name, value in values.items()}
    words = who | shown
    words |= {slot: word.format_map(words) for slot, word in cast.items()}

    def step(match: re.Match) -> str:
        name, left, sign, right = match.groups()
        a, b = (
            shown.get(token) or show(operand(values, token), token.rstrip("%") in one.money)
            for token in (left, right)
        )
        return f"{a} {sign} {b} = {shown[name]}"

    answer = shown[STEP.findall(one.solution)[-1][0]]
    solution = STEP.sub(step, one.solution).format_map(words)
    return {
        "type": GRADES[one.grade],
        "difficulty": one.grade,
        "template": one.name,
        "problem": one.text.format_map(words),
        "solution": f"{solution} The answer is \\boxed{{{answer}}}.",
        "answer": answer,
        "answer_type": "number",
        "licence": LICENCE,
    }


def problems_of(one: Template) -> list[dict]:
    """One problem for each cast, all with different answers."""
    rng = random.Random(f"{SEED} {one.name}")
    rows: list[dict] = []
    answers: set[str] = set()
    for cast in one.casts:
        while True:
            row = write_out(one, cast, draw(one, rng), people(rng))
            if row["answer"] not in answers:
                break
        answers.add(row["answer"])
        rows.append(row)
    return rows


def word_problems() -> Iterable[dict]:
    """All problems: grades take turns, and within a grade so do the templates."""
    by_grade: dict[int, list[dict]] = {}
    for grade in GRADES:
        columns = [problems_of(one) for one in TEMPLATES if one.grade == grade]
        by_grade[grade] = [row for turn in zip(*columns, strict=True) for row in turn]
    for number, turn in enumerate(zip(*by_grade.values(), strict=True), start=1):
        for row in turn:
            yield {"id": f"wp-{row['difficulty']}-{number:03d}"} | row


def main() -> None:
    beside = pathlib.Path(__file__).parent / "word_problems.jsonl"
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else beside
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in word_problems()]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    print(f"{path}: {len(lines)} problems from {len(TEMPLATES)} templates")


if __name__ == "__main__":
    main()
