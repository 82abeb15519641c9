"""What trains between two cycles, and serves what was trained: `cotkit.train.EmbeddedTrainer`, or your own.

A trainer has the three methods of `Trainer`. `train` blocks and may be killed at any time: the same call on
the same folder goes on or starts anew. It returns a manifest, JSON, which is written down; from that alone
`serve` makes the actor, also in a later session. Its "status" is "ok", or says why there is nothing to
serve ("diverged"). What may pass (a full disk) is raised as OSError or RuntimeError: the run stops, and the
same call tries again.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cotkit.chat import ChatModel


class Trainer(Protocol):
    def describe(self) -> dict[str, Any]:
        """What the result depends on; recorded and compared on resume."""

    def train(
        self, method: str, data: pathlib.Path, champion: Mapping[str, Any] | None, output: pathlib.Path
    ) -> dict[str, Any]:
        """Train on the exported file, from the champion's manifest (None = the untrained base)."""

    def serve(self, manifest: Mapping[str, Any]) -> ChatModel:
        """The trained actor."""
