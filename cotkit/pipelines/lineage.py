"""What a generated problem inherits from what it was made from, and the Problem in its row."""

from __future__ import annotations

from cotkit.pipelines.running import problem_of
from cotkit.pipelines.strategies import Plan
from cotkit.problems import Problem
from cotkit.records import Row


def inherit(row: Row, plan: Plan) -> None:
    """Licence, split and type of what the problem is made from, and where it comes from."""
    about, first = row.metadata["synthesis"], plan.seeds[0]
    from_machine = [problem.metadata["synthesis"] for problem in plan.machine]
    seed_ids = [s.id for s in plan.seeds] + [id for made in from_machine for id in made["seed_ids"]]
    licences = [s.licence for s in plan.seeds] + [one for made in from_machine for one in made["licences"]]
    licences = list(dict.fromkeys(licences))
    row.type = first.type
    row.licence = None if None in licences else " AND ".join(licences)  # all hold; an unknown one stays so
    row.metadata |= {"split": first.metadata["split"]} if "split" in first.metadata else {}
    about |= {
        "round": plan.round,
        "operator": plan.operator.name if plan.operator else None,
        "operator_text": plan.operator.text if plan.operator else None,
        "topic": first.metadata.get("topic"),
        "seed_ids": list(dict.fromkeys(seed_ids)),
        "parents": [problem.id for problem in plan.machine],
        "lineage": [],  # attempts it was rewritten from, one after the other
        "split": first.metadata.get("split"),
        "licences": licences,
    }
    if plan.parent is not None and from_machine:
        about["lineage"] = [*from_machine[0]["lineage"], from_machine[0]["attempt"]]


def made_problem(row: Row) -> Problem:
    """The generated problem of a row; what its calls were stays in the row."""
    about = {name: value for name, value in row.metadata["synthesis"].items() if name != "calls"}
    metadata = {name: value for name, value in row.metadata.items() if name != "solution_code"}
    metadata["synthesis"] = about
    return problem_of(row, solution_code=row.metadata.get("solution_code"), metadata=metadata)
