"""The libraries of the extra `train`, imported when a training asks for them, never before."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType

INSTALL = (
    "Training needs the extra `train`: pip install -e '/path/to/clone[train]'. On Linux without a GPU "
    "install the CPU build of torch first, see docs/training.md. Everything else in cotkit works without it."
)


LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


def check_installed(*more: str) -> None:
    """Raises ImportError, naming all of them, when libraries of a training (and `more`) are missing; imports
    none."""
    if missing := [name for name in (*LIBRARIES, *more) if importlib.util.find_spec(name) is None]:
        raise ImportError(f"{INSTALL} (missing: {', '.join(missing)})")


def loaded(*names: str) -> list[ModuleType]:
    """The modules, with no telemetry and no look at the network; ImportError says what to install.

    These settings are read when the libraries are first imported; a user's own win. HF_HUB_OFFLINE is taken
    back, since fetching the weights of an embedded model minds it too.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads and a later fork do not mix
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads stall each other on a busy machine
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        return [importlib.import_module(name) for name in names]
    except ModuleNotFoundError as error:
        raise ImportError(f"{INSTALL} (missing: {error.name})") from error
    finally:
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
