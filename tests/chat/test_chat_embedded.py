"""Where a server of an embedded model has ended; that one runs and answers is tested in tests/embedded."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import types

from cotkit.chat import embedded


def test_a_server_that_ends_between_the_look_and_the_kill_is_started_again(monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    place = types.SimpleNamespace(
        lock=types.SimpleNamespace(acquire=lambda timeout: contextlib.nullcontext()),
        join=lambda pid: None,
        state=lambda: {"port": 1, "pid": ended.pid},
    )
    monkeypatch.setattr(embedded, "_answers", lambda port: False)
    monkeypatch.setattr(embedded, "_start", lambda place, settings: 1234)
    assert embedded._running_or_started(place, {}) == 1234
