"""How alike two questions are: unit vectors whose dot product is the similarity.

The default needs no model: TF-IDF of words, fitted on the seeds and all sets together so that their numbers
can be compared, with all numbers read as one word (a question that only changes the numbers is no new one).
Vectors from an embedding model take its place when they are given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas

MAP_MOST = 600  # questions on a map
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TOKEN = re.compile(rf"(\d+(?:[.,]\d+)*)|[{_CJK}]|[^\W\d_{_CJK}]+|[^\w\s]")


def words(text: str) -> list[str]:
    """Lower-case words, punctuation marks and CJK characters; every number becomes "0"."""
    return ["0" if found[1] else found[0] for found in _TOKEN.finditer(text.lower())]


@dataclass(frozen=True)
class Kernel:
    """`vectors[i]` (unit length; numpy or sparse) stands for text i; `name` says what it is."""

    name: str
    vectors: Any

    def cosines(self, left: Sequence[int], right: Sequence[int]) -> np.ndarray:
        """The similarity of each text of `left` to each of `right`."""
        product = self.vectors[left] @ self.vectors[right].T
        return product.toarray() if hasattr(product, "toarray") else product


def tfidf_kernel(texts: Sequence[str]) -> Kernel:
    """TF-IDF of `words` without punctuation, counts as 1 + log(count)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    def terms(text: str) -> list[str]:
        return [word for word in words(text) if word.isalnum()] or ["(no word)"]

    vectorizer = TfidfVectorizer(analyzer=terms, sublinear_tf=True)
    return Kernel("TF-IDF of words, numbers made alike", vectorizer.fit_transform(texts).tocsr())


def given_kernel(vectors: Any, count: int, name: str) -> Kernel:
    """A kernel from `count` embeddings, one row a text; raises ValueError for what cannot be one."""
    vectors = np.asarray(vectors, float)
    if vectors.ndim != 2 or len(vectors) != count:
        raise ValueError(f"kernel {name}: expected one vector for each of {count} texts, got {vectors.shape}")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError(f"kernel {name}: some vectors are zero or hold what is no number")
    return Kernel(name, vectors / lengths)


def vendi_score(similarities: np.ndarray) -> float:
    """The effective number of different items: exp of the entropy of the eigenvalues of K / n.

    1 = all alike, n = all different. `similarities`: n x n, symmetric, ones on the diagonal.
    Source: Friedman and Dieng (2022), The Vendi Score, arXiv 2210.02410, definition 3.1.
    """
    weights = np.linalg.eigvalsh(similarities / len(similarities))
    weights = weights[weights > 1e-12]
    return float(np.exp(-(weights * np.log(weights)).sum()))


def question_map(kernel: Kernel, sets: Sequence[str], seed: int = 0) -> pandas.DataFrame:
    """Two coordinates a question, by t-SNE: near means alike, distances across the map mean little.

    sets[i]: the set of question i. At most `MAP_MOST` questions, equally many of each set as far as it has
    them; none for fewer than five. Columns: item (place in the kernel), set, x, y.
    """
    import pandas
    from sklearn.decomposition import TruncatedSVD
    from sklearn.manifold import TSNE

    rng = np.random.default_rng(seed)
    names = list(dict.fromkeys(sets))
    places = [rng.permutation(np.flatnonzero(np.array(sets) == name)) for name in names]
    items = np.sort(np.concatenate([place[: MAP_MOST // len(names)] for place in places] or [[]])).astype(int)
    if len(items) < 5:
        return pandas.DataFrame(columns=["item", "set", "x", "y"])
    vectors = kernel.vectors[items]
    if min(vectors.shape) > 50:
        vectors = TruncatedSVD(50, random_state=seed).fit_transform(vectors)
    elif hasattr(vectors, "toarray"):
        vectors = vectors.toarray()
    nearest = min(30, (len(items) - 1) / 3)
    tsne = TSNE(perplexity=nearest, init="random", max_iter=500, random_state=seed)
    points = tsne.fit_transform(vectors)
    return pandas.DataFrame(
        {"item": items, "set": [sets[i] for i in items], "x": points[:, 0], "y": points[:, 1]}
    )
