"""Where the machine gives no isolation, programs of models are not run, and neither are these tests."""

from __future__ import annotations

import pytest

from cotkit.verify import isolation


@pytest.fixture(scope="session", autouse=True)
def walls():
    if (found := isolation()).weak:
        pytest.skip(f"this machine reaches isolation {found.level} only: {'; '.join(found.missing)}")
