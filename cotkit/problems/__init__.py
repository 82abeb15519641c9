"""What goes in: problems, their loaders and their validation."""

from cotkit.problems.records import Problem, ProblemError

__all__ = ["Problem", "ProblemError"]
