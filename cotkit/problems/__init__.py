"""What goes in: problems, their loaders and their validation.

`load_problems` is the way in: it reads a file, a data set or rows in memory (`sources`, `formats`),
recognises the form of the rows (`forms`), validates all of them and then filters, shuffles and cuts. With
`stream=True` the problems of a JSON-lines file stay in it (`files`).
"""

from cotkit.problems.files import ProblemFile
from cotkit.problems.forms import problem_from_row
from cotkit.problems.loading import load_problems, problems_frame
from cotkit.problems.records import Problem, ProblemError
from cotkit.problems.sources import data_folder

__all__ = [
    "Problem",
    "ProblemError",
    "ProblemFile",
    "data_folder",
    "load_problems",
    "problem_from_row",
    "problems_frame",
]
