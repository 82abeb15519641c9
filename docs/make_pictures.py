"""The README's picture, from a real run: python docs/make_pictures.py reports/<run>/report.html

Needs Chromium on PATH. Writes docs/report.png: the top of the page.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1.25",
    "--window-size=1280,1150",
]


def main(page: str) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is needed to take the picture")
    target = pathlib.Path(__file__).with_name("report.png")
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, *FLAGS, f"--user-data-dir={profile}", f"--screenshot={target}"]
        subprocess.run(
            [*command, pathlib.Path(page).resolve().as_uri()], check=True, stderr=subprocess.DEVNULL
        )
    print(target)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
