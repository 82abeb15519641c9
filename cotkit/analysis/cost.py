"""What a run cost: calls, tokens, money and time, by role.

Counts come from the ledger's totals in the run's report; where a run was killed before it wrote one, from the
traces in its rows, which is then a lower bound. Latency and speed come from the rows (an answer from the
cache has the latency it had when it was asked for). What nobody counted is nan and called unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cotkit.records import Row

if TYPE_CHECKING:
    import pandas

ROLE_OF_STAGE = {"draft": "generator", "refine": "improver", "rationalize": "rationalizer"}
_USAGE = ("prompt_tokens", "completion_tokens", "cost_usd")


def throughput(rows: Sequence[Row], report: dict[str, Any]) -> pandas.DataFrame:
    """One line a role and, last, "all" of them.

    Columns: role; calls (answered), failed, cached (answered without asking); prompt_tokens,
    completion_tokens; cost_usd (nan = unknown) and cost (in words); calls_per_kept (calls for one kept
    problem); latency_p50 and latency_p90 in seconds over `timed` calls; tokens_per_s (completion tokens a
    second within one call, median).
    """
    import pandas

    calls = pandas.DataFrame(list(_calls(rows)), columns=["role", "cached", "latency_s", *_USAGE])
    totals = _ledger_totals(report) or _row_totals(calls)
    kept = sum(row.accepted for row in rows)
    lines = []
    for role, counts in totals.items():
        line = {"role": role, **{name: counts.get(name) for name in ("calls", "failed", "cached", *_USAGE)}}
        line |= {"cost": cost_in_words(counts), "calls_per_kept": counts["calls"] / kept if kept else None}
        lines.append(line | _timing(calls if role == "all" else calls[calls["role"] == role]))
    frame = pandas.DataFrame(lines)
    whole = ("calls", "failed", "cached", "prompt_tokens", "completion_tokens", "timed")
    rest = ("cost_usd", "calls_per_kept", "latency_p50", "latency_p90", "tokens_per_s")
    return frame.astype({**dict.fromkeys(whole, "Int64"), **dict.fromkeys(rest, "float64")})


def _ledger_totals(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    ledger = report.get("ledger") or {}
    if not ledger.get("by_role"):
        return {}
    totals = {**ledger["by_role"], "all": ledger}
    return {
        role: {**counts, "failed": sum(counts.get("failed", {}).values())} for role, counts in totals.items()
    }


def _row_totals(calls: pandas.DataFrame) -> dict[str, dict[str, Any]]:
    totals = {role: _summed(calls[calls["role"] == role]) for role in calls["role"].unique()}
    return {**totals, "all": _summed(calls)}


def _summed(calls: pandas.DataFrame) -> dict[str, Any]:
    """Totals as the ledger gives them; a sum of nothing known is None."""
    known = {name: calls[name].dropna() for name in _USAGE}
    sums = {name: values.sum() if len(values) else None for name, values in known.items()}
    cached = int(calls["cached"].sum())
    counts = {"calls": len(calls) - cached, "cached": cached, "failed": None}
    return {**sums, **counts, "unknown_cost": len(calls) - len(known["cost_usd"])}


def _calls(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The calls that the rows record: one a trace, one a judgement by a model."""
    for row in rows:
        for c in row.candidates:
            yield {"role": ROLE_OF_STAGE[c.stage], **_call(c.call)}
            if c.judgement and c.judgement.call:
                yield {"role": "judge", **_call(c.judgement.call)}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    usage = call.get("usage") or {}
    counts = {name: usage.get(name) for name in _USAGE}
    return {"cached": bool(call.get("cached")), "latency_s": call.get("latency_s"), **counts}


def cost_in_words(counts: dict[str, Any]) -> str:
    """ "$0.012", "unknown", or "at least $0.012" where some calls have no known price."""
    cost = counts.get("cost_usd")
    if cost is None:
        return "unknown"
    return f"{'at least ' if counts.get('unknown_cost') else ''}${cost:.4g}"


def _timing(calls: pandas.DataFrame) -> dict[str, Any]:
    asked = calls[calls["latency_s"].astype(float) > 0]
    latency = asked["latency_s"].astype(float)
    return {
        "latency_p50": latency.quantile(0.5),
        "latency_p90": latency.quantile(0.9),
        "tokens_per_s": (asked["completion_tokens"].astype(float) / latency).median(),
        "timed": len(asked),
    }
