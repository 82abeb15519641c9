"""The pictures of README and docs, from runs that are there: python docs/make_pictures.py [RUN] [LOOP]

RUN, by default `demo`, names a run folder and its report (`make demo ARGS="--name demo -p run_name=demo"`),
LOOP, by default `self_improvement`, the report of notebook 04. Needs Chromium. Reports are opened from disk,
the widgets in JupyterLab as a person would.
"""

from __future__ import annotations

import io
import pathlib
import sys
import tempfile

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "browser"))

from lab import FLAGS, chromium, jupyterlab, open_and_run, write_notebook  # noqa: E402

from cotkit.report.notebooks import project_root  # noqa: E402

WIDGETS = {"traces": "widgets.TraceBrowser(run)", "thresholds": "widgets.ThresholdExplorer(run)"}
TEST_SET = "Every actor on the test set"
SETUP = "import cotkit\nfrom cotkit import widgets\ncotkit.notebook_setup()\nrun = cotkit.open_run({run!r})"


def keep(png: bytes, name: str) -> None:
    """256 colours are enough, and a quarter of the bytes."""
    target = HERE / f"{name}.png"
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        target, optimize=True
    )
    print(f"{target} {target.stat().st_size // 1000} kB")


def open_report(page: Page, name: str) -> None:
    page.goto((project_root() / "reports" / name / "report.html").as_uri())


def main(run: str = "demo", loop: str = "self_improvement") -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        shown = browser.new_page(viewport={"width": 1280, "height": 1150})
        open_report(shown, run)
        keep(shown.screenshot(), "report")
        open_report(shown, loop)
        keep(shown.locator("figure", has_text=TEST_SET).locator("img.light").screenshot(), "self_improvement")
        served = pathlib.Path(scratch, "served")
        served.mkdir()
        write_notebook(served / "pictures.ipynb", SETUP.format(run=run), *WIDGETS.values())
        with jupyterlab(pathlib.Path(scratch), served, COTKIT_ROOT=str(project_root())) as address:
            shown.set_viewport_size({"width": 1280, "height": 2400})
            open_and_run(shown, address, "pictures.ipynb")
            roots = shown.locator(".cotkit-widget")
            roots.nth(len(WIDGETS) - 1).wait_for()
            shown.locator(".jp-OutputArea-output").get_by_role("button", name="Next").click()
            shown.get_by_text("problem 2 of").wait_for()
            for number, name in enumerate(WIDGETS):
                keep(roots.nth(number).screenshot(), name)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
