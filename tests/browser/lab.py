"""JupyterLab in a process of its own and Chromium that may talk to nothing else: for tests that use both."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import nbformat

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
IDLE = r"""() => [...document.querySelectorAll('#jp-main-statusbar *')]
    .some(e => /Python 3.*\| Idle/.test(e.textContent))"""
OUTPUT = ".jp-OutputArea-output "
PATIENCE_MS = 60_000
TOKEN = "t0ken"


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextlib.contextmanager
def jupyterlab(folder: pathlib.Path, notebooks: pathlib.Path, app: str = "jupyterlab", **environment: str):
    """Its address. `folder` holds its settings and log, `notebooks` is what it serves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = folder / "settings/@jupyterlab/apputils-extension"
    quiet.mkdir(parents=True)
    settings = {"fetchNews": "false", "checkForUpdates": False}
    (quiet / "notification.jupyterlab-settings").write_text(json.dumps(settings))
    (quiet / "themes.jupyterlab-settings").write_text(json.dumps({"adaptive-theme": True}))
    names = {"CONFIG": "cfg", "DATA": "data", "RUNTIME": "rt"}
    env = {**os.environ, **{f"JUPYTER_{name}_DIR": str(folder / place) for name, place in names.items()}}
    env |= {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "ws"),
    }
    env |= environment
    command = [
        sys.executable, "-m", app, "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        "--allow-root", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={notebooks}",
        f"--IdentityProvider.token={TOKEN}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    with open(folder / "lab.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until_up(port, server, folder / "lab.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        end(server)


def wait_until_up(port: int, server: subprocess.Popen, log: pathlib.Path) -> None:
    address = f"http://127.0.0.1:{port}/api/status"
    request = urllib.request.Request(address, headers={"Authorization": f"token {TOKEN}"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError):
            direct.open(request, timeout=2).close()
            return
        time.sleep(0.2)
    raise TimeoutError(log.read_text(encoding="utf-8")[-3000:])


def end(server: subprocess.Popen) -> None:
    """SIGINT asks, a second signal confirms."""
    for how, patience in ((signal.SIGINT, 1), (signal.SIGTERM, 8), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(server.pid, how)
            server.wait(patience)


class Watched:
    """A page whose requests outside of `allowed` are refused and remembered, as are its console's errors."""

    def __init__(self, browser, allowed: tuple[str, ...], width: int = 1280, scheme: str = "light"):
        self.page = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        self.page.set_default_timeout(PATIENCE_MS)
        self.outside: list[str] = []
        self.errors: list[str] = []
        self._allowed = (*allowed, "data:", "blob:")
        self.page.route("**/*", self._gate)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _gate(self, route) -> None:
        if route.request.url.startswith(self._allowed):
            route.continue_()
        else:
            self.outside.append(route.request.url)
            route.abort()

    def _note(self, message) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def close(self) -> None:
        self.page.close()


def write_notebook(path: pathlib.Path, *cells: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
    }
    nbformat.write(notebook, path)


def open_and_run(page, address: str, name: str) -> None:
    """Opens a notebook of the served folder, waits for its kernel, runs all cells."""
    page.goto(f"{address}/lab/tree/{name}?token={TOKEN}&reset")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    page.wait_for_function(IDLE)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("^Run All Cells$")).click()


def keep_picture(shown, name: str) -> None:
    """A screenshot of a page, or of one part of it, where somebody wants to look."""
    if folder := os.environ.get("COTKIT_SCREENSHOTS"):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        whole = {"full_page": True} if hasattr(shown, "goto") else {}
        shown.screenshot(path=pathlib.Path(folder) / f"{name}.png", **whole)
