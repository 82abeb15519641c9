"""The pipelines: each one file that reads top to bottom."""

from cotkit.pipelines.distill import adistill, distill, start_distill
from cotkit.pipelines.progress import status_line
from cotkit.pipelines.running import RunJob

__all__ = ["RunJob", "adistill", "distill", "start_distill", "status_line"]
