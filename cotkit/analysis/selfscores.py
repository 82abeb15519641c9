"""Scores that need no judge: how many drafts agree on the answer, how likely the model found its own words.

Neither asks a model again. `mean_logprob` is a column of `candidates_frame`, where the run's generator was
given `extra_body={"logprobs": True}`: the mean log-probability of a trace's tokens, at most 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from cotkit.verify import answer_key

if TYPE_CHECKING:
    import pandas


def self_consistency(frame: pandas.DataFrame) -> pandas.Series:
    """The share of the other drafts of a problem with the same answer, 0..1, by line of `candidates_frame`.

    A trace has no vote on itself: a lone answer scores 0, whatever the number of drafts. Answers agree when
    `answer_key` gives them one key; a trace without an answer agrees with none and scores 0. Only drafts
    vote, since refinements were told what is wrong. Rationalized traces, and those of a problem with no other
    draft, have no score (nan).
    Source: Wang et al. (2022), arXiv 2203.11171, with the vote left out that a trace gives to itself.
    """
    import pandas

    spelled = {answer: answer_key(answer) for answer in frame["answer"].dropna().unique()}
    keys = frame["answer"].map(spelled).astype(object).where(frame["answer"].notna(), None)
    drafts = (frame["stage"] == "draft").to_numpy()
    votes: dict[str, Counter] = defaultdict(Counter)
    for problem, key in zip(frame["id"][drafts], keys[drafts], strict=True):
        votes[problem][key] += 1
    shares = []
    for problem, key, own, hinted in zip(frame["id"], keys, drafts, frame["rationalized"], strict=True):
        others = votes[problem].total() - own
        agree = 0 if key is None else votes[problem][key] - own
        shares.append(agree / others if others and not hinted else float("nan"))
    return pandas.Series(shares, frame.index, float, name="self_consistency")
