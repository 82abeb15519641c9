"""Where the kernel gives no L2 the tests are skipped, but for those marked `any_level`.

`variant` makes a copy of the sandbox with lines changed: a wall taken out, an older kernel.
COTKIT_TEST_THOROUGHLY=1: a thousand programs for leaks and all attacks as another user, not a share.
"""

from __future__ import annotations

import importlib
import itertools
import os
import pathlib
import shutil
import sys

import pytest

import cotkit.verify.sandbox
from cotkit.verify.sandbox import isolation

NUMBERS = itertools.count()
PACKAGE = pathlib.Path(cotkit.verify.sandbox.__file__).parent


def pytest_configure(config):
    config.addinivalue_line("markers", "any_level: a test of the sandbox that needs no walls")


@pytest.fixture(autouse=True)
def walls(request):
    if not request.node.get_closest_marker("any_level") and (found := isolation()).weak:
        pytest.skip(f"this machine reaches isolation {found.level} only: {'; '.join(found.missing)}")


@pytest.fixture(scope="session")
def thoroughly() -> bool:
    return os.environ.get("COTKIT_TEST_THOROUGHLY", "") not in ("", "0")


@pytest.fixture
def variant(tmp_path, monkeypatch):
    """`variant({("server.py", "old line"): "new line"})` returns the copy's `program` module."""
    copies = []

    def make(changes):
        name = f"sandbox_variant_{next(NUMBERS)}"
        folder = tmp_path / name
        shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        init = folder / "__init__.py"
        init.write_text(init.read_text().replace("cotkit.verify.sandbox", name))
        faster = {("job.py", 'PACKAGES = ("numpy", "sympy")'): "PACKAGES = ()"}
        for (file, old), new in (changes | faster).items():
            text = (folder / file).read_text()
            assert text.count(old) == 1, (file, old)
            (folder / file).write_text(text.replace(old, new))
        monkeypatch.syspath_prepend(tmp_path)
        copies.append(name)
        return importlib.import_module(f"{name}.program")

    yield make
    for name in copies:
        sys.modules[f"{name}.client"].close_servers()
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]
