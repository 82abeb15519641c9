"""Checking an answer by program."""

from cotkit.records import Extraction, Verdict

__all__ = ["Extraction", "Verdict"]
