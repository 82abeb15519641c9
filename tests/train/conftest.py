"""What the tests that train a tiny model share."""

from __future__ import annotations

import pytest
from tiny import tiny_model


@pytest.fixture(scope="module")
def one_thread():
    """Two threads gain nothing on a model this small and stall each other on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("base"))
