"""`notebook_setup`: what a notebook asks for in its first cell. Nothing of it happens at import."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
import pathlib
import sys

from cotkit.paths import root


def notebook_setup(*, nest_asyncio: bool = False) -> pathlib.Path:
    """Make this kernel ready: cotkit's figure style, readable tables, and the project's root as the current
    folder, so that a path means the same in JupyterLab and headless. Returns the root.

    `nest_asyncio=True` also lets your own cells call `asyncio.run` and `loop.run_until_complete`, which
    cotkit itself never needs: it patches asyncio for the whole kernel. RuntimeError where no patch works.
    """
    if nest_asyncio:
        _allow_nested_loops()
    _figure_style()
    _table_options()
    project = root()
    os.chdir(project)
    return project


def _allow_nested_loops() -> None:
    if importlib.util.find_spec("nest_asyncio2"):
        import nest_asyncio2 as patch
    elif sys.version_info < (3, 14) and importlib.util.find_spec("nest_asyncio"):
        import nest_asyncio as patch  # under 3.14 it leaves asyncio.current_task() None
    else:
        raise RuntimeError("nested event loops need the package nest-asyncio2: pip install nest-asyncio2")
    patch.apply()


def _figure_style() -> None:
    import matplotlib.pyplot as plt

    plt.style.use(str(importlib.resources.files("cotkit") / "cotkit.mplstyle"))


def _table_options() -> None:
    import pandas

    pandas.set_option("display.max_colwidth", 120)
    pandas.set_option("display.max_rows", 60)
    pandas.set_option("display.precision", 3)
