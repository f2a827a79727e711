# ruff: noqa: INP001, a script
"""Make docs/images/page.png: the page over the bundled demo images, in headless Chromium.

Run by scripts/screenshots.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

import hshap
from hshap.demo import bundled, load
from hshap.demo.overview import probability_of_a_cross
from hshap.export.page import View, write_page

OUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "page.png"
PARTITIONS = {"cross, by superpixels": hshap.Superpixels(), "cross, by quadtree": hshap.Dyadic(4)}


def views() -> list[View]:
    """Explain the bundled images by two partitions."""
    samples, network = bundled(), load()
    out = []
    for number, pixels in enumerate(samples["images"]):
        image = pixels.astype(np.float32) / np.float32(255)
        explanations = {
            name: hshap.Explainer(
                network,
                baseline=hshap.Fixed(samples["mean"]),
                partition=partition,
                search=hshap.DepthFirst(tolerance=0.02),
            ).explain(image, target=probability_of_a_cross)
            for name, partition in PARTITIONS.items()
        }
        truth = samples["truths"][number].astype(bool)
        out.append(View(f"image-{number}.png", image, explanations, truth=truth))
    return out


def main() -> None:
    """Write the page, look at its last image, and select a finding."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("scripts/screenshots: no chromium was found; install Debian's package chromium")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = write_page(Path(folder) / "page.html", views(), title="Where are the crosses?")
        browser = playwright.chromium.launch(executable_path=chromium, args=options)
        tab = browser.new_page(viewport={"width": 1440, "height": 860})
        tab.goto(path.as_uri())
        tab.evaluate("hshap.ready.then(() => hshap.open(3))")
        tab.wait_for_selector(".panel")
        tab.locator("#finding-1").click()
        tab.keyboard.press("a")
        tab.locator(".screen").first.focus()
        tab.keyboard.press("0")
        tab.wait_for_timeout(500)
        tab.screenshot(path=OUT)
        browser.close()
    sys.stdout.write(f"{OUT}\n")


if __name__ == "__main__":
    main()
