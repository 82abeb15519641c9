"""Is a question new? Exact copies, copies with other numbers, near-duplicates, and the original's ROUGE-L.

- exact: the same words, whatever the case, spacing and punctuation
- skeleton: the same words when every number, in digits or in words, is replaced
  (in a text that holds a formula, its operators and brackets are words like others)
- one word: a short skeleton in which one word is another, is missing or is elsewhere
- near: Jaccard similarity of word triples, numbers replaced, at or above `near`; MinHash with locality-
  sensitive hashing (Broder 1997; Leskovec et al., Mining of Massive Datasets, ch. 3) finds the candidates,
  the exact similarity decides
- rouge_l (on request): F1 of the longest common subsequence of words above `rouge_l`, the gate of
  Self-Instruct (Wang et al. 2022, arXiv 2212.10560, section 2.2), against every text, bit-parallel
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # written without spaces: each character is a word
_WORD = re.compile(rf"\d+(?:[.,:/]\d+)*|[{_CJK}]|[^\W\d_{_CJK}]+")
_FORMULA = re.compile(r"[+*^=<>≤≥≠×÷−]|[\w)\]] [-/] [\w(\[]|[\d)\]][-/][\d(\[]|\b\d*[a-z][-/](?:\d|[a-z]\b)")
_FORMULA_WORD = re.compile(rf"{_WORD.pattern}|\*\*|[<>=!]=|[-+*/^=<>≤≥≠×÷−()\[\]]")
NUMBER_WORDS = frozenset(
    """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand
    million billion dozen half third quarter twice double triple
    """.split()  # noqa: SIM905 - as a list it is a page long
)
_FOUND_EARLY = 0.6  # share of `near` from which MinHash proposes: its estimate has noise, so few are missed
_PERMUTATIONS = 64
_SHORT = 24  # words; in a longer text one changed word leaves enough triples for `near`


def words_of(text: str) -> list[str]:
    text = unicodedata.normalize("NFKC", text).casefold()
    return (_FORMULA_WORD if _FORMULA.search(text) else _WORD).findall(text)


def skeleton_of(words: Sequence[str]) -> list[str]:
    """The words with every number replaced by #; "twenty five" is one number."""
    return [
        "#" if is_number(word) else word
        for before, word in zip(["", *words], words, strict=False)
        if not (word in NUMBER_WORDS and before in NUMBER_WORDS)
    ]


def is_number(word: str) -> bool:
    return word[0].isdigit() or word in NUMBER_WORDS


def rouge_l(a: Sequence[str], b: Sequence[str]) -> float:
    """ROUGE-L F1 of two word lists, 0..1. Source: Lin (2004); bit-parallel LCS after Hyyro (2004)."""
    if not a or not b:
        return 0.0
    places: dict[str, int] = defaultdict(int)
    for place, word in enumerate(a):
        places[word] |= 1 << place
    row = everything = (1 << len(a)) - 1
    for word in b:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & everything
    common = len(a) - row.bit_count()
    return 2 * common / (len(a) + len(b))


class Novelty:
    """An index of texts under keys, asked which of them a new text is like."""

    def __init__(self, near: float, rouge: float | None = None):
        from datasketch import MinHashLSH

        self.near, self.rouge = near, rouge
        self._words: dict[Hashable, list[str]] = {}
        self._triples: dict[Hashable, frozenset] = {}
        self._same: dict[str, list[Hashable]] = defaultdict(list)
        self._but_one: dict[str, list[Hashable]] = defaultdict(list)
        self._lsh = MinHashLSH(threshold=near * _FOUND_EARLY, num_perm=_PERMUTATIONS)

    @classmethod
    def of_gates(cls, gates: Mapping[str, Any]) -> Novelty:
        return cls(gates["near"], gates["rouge_l"])

    def add(self, key: Hashable, text: str) -> None:
        words = words_of(text)
        skeleton = skeleton_of(words)
        self._words[key], self._triples[key] = words, _triples(skeleton)
        self._same[" ".join(skeleton)].append(key)
        for rest in _without_one(skeleton):
            self._but_one[rest].append(key)
        self._lsh.insert(key, _min_hash(self._triples[key]))

    def like(self, text: str, relatives: Collection[Hashable] = ()) -> Iterator[tuple[Hashable, str]]:
        """(key, how) of every text this one is like, closest kind first; a key may come twice.

        What was made from `relatives` shares much with them: of those only the same words count.
        """
        words = words_of(text)
        skeleton = skeleton_of(words)
        for key in self._same.get(" ".join(skeleton), ()):
            yield key, "the same words" if self._words[key] == words else "only the numbers differ"
        found = (key for rest in _without_one(skeleton) for key in self._but_one.get(rest, ()))
        for key in dict.fromkeys(found):
            if key not in relatives:
                yield key, "but for numbers, one word differs"
        triples = _triples(skeleton)
        for key in self._lsh.query(_min_hash(triples)):
            shared = len(triples & self._triples[key]) / len(triples | self._triples[key])
            if shared >= self.near and key not in relatives:
                yield key, f"{100 * shared:.0f} % of the word triples are shared"
        for key, others in self._words.items() if self.rouge is not None else ():
            most = 2 * min(len(words), len(others)) / (len(words) + len(others) or 1)
            if most > self.rouge and key not in relatives and (f1 := rouge_l(words, others)) > self.rouge:
                yield key, f"ROUGE-L {f1:.2f}"


def _without_one(skeleton: Sequence[str]) -> list[str]:
    """A short text as it is and without each of its words: two texts that share one are a word apart."""
    if len(skeleton) > _SHORT:
        return []
    cut = [" ".join([*skeleton[:i], *skeleton[i + 1 :]]) for i in range(len(skeleton))]
    return [" ".join(skeleton), *dict.fromkeys(cut)]


def _triples(words: Sequence[str]) -> frozenset[str]:
    return frozenset(" ".join(words[i : i + 3]) for i in range(max(1, len(words) - 2)))


def _min_hash(triples: frozenset[str]):
    from datasketch import MinHash

    sketch = MinHash(num_perm=_PERMUTATIONS)
    sketch.update_batch([triple.encode() for triple in triples])
    return sketch
