"""`import cotkit` costs next to nothing: heavy libraries come when they are used, nothing is fetched."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import cotkit

HEAVY = {
    "openai", "pandas", "matplotlib", "ipywidgets", "torch", "numpy", "aiohttp", "pydantic", "jinja2",
    "sympy", "math_verify", "xllamacpp", "papermill", "pyarrow", "IPython",
}  # fmt: skip


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_cotkit_loads_nothing_heavy():
    assert not modules_after("import cotkit") & HEAVY


@pytest.mark.parametrize("room", ["problems", "chat", "verify", "judge", "runs", "pipelines", "analysis"])
def test_a_room_loads_no_heavy_library(room):
    assert not modules_after(f"import cotkit.{room}") & (HEAVY - {"pydantic", "jinja2"})


def test_every_public_name_is_there():
    assert len(cotkit.__all__) > 25
    for name in cotkit.__all__:
        assert getattr(cotkit, name) is not None, name


def test_a_misspelt_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="distil"):
        _ = cotkit.distil


def test_the_prompts_are_shipped_and_known_by_their_hash():
    from cotkit.prompts import FOLDER, load

    names = sorted(path.stem for path in FOLDER.glob("*.j2"))
    assert {"reasoning", "refine", "rationalize", "judge"} <= set(names)
    assert len({load(name).hash for name in names}) == len(names)
    assert importlib.import_module("cotkit.prompts").load is load
