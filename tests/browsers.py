"""Pages in a real browser: fixtures that open them, and helpers that look at them."""

from __future__ import annotations

import base64
import os
import shutil

import numpy as np
import pytest

import hshap
from hshap.export.page import write_page

MILLISECONDS = 120_000
"""For a browser to do something: longer than usual, since a busy machine is slow."""


@pytest.fixture(scope="module")
def browser():
    """Chromium, as Debian installs it."""
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium_path is None:
        pytest.skip("no browser: install chromium, for example Debian's package")
    with sync_api.sync_playwright() as playwright:
        # As root, as in containers, Chromium refuses to start with its sandbox.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(
            executable_path=chromium_path, args=options, timeout=MILLISECONDS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Open a page, and afterwards check that it was quiet and asked for nothing."""
    complaints, contexts = [], []

    def opened(path, *, address="", context=None, allowed=(), **options):
        if context is None:
            options = {"viewport": {"width": 1200, "height": 800}, **options}
            context = browser.new_context(**options)
        context.set_default_timeout(MILLISECONDS)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
        tab.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("data:", "blob:", *allowed))
                or request.url.partition("#")[0] == path.as_uri()
                else complaints.append(request.url)
            ),
        )
        tab.goto(path.as_uri() + address)
        tab.evaluate("hshap.ready")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture
def show(visit, tmp_path):
    """Write views to a file and open it."""

    def opened(views, *, title="test", form="auto", **options):
        path = write_page(tmp_path / "page.html", views, title=title, form=form)
        if form == "folder":
            options["allowed"] = ((tmp_path / "page_files").as_uri(),)
        return visit(path, **options)

    return opened


def weighted(weights):
    """Return a model that adds and multiplies what is seen, so that coefficients differ."""

    def model(batch):
        seen = (batch[:, 0] * weights).sum(axis=(1, 2))
        half = weights.shape[1] // 2
        together = (batch[:, 0, :, :half] * weights[:, :half]).sum(axis=(1, 2))
        return seen + 0.3 * together * (seen - together)

    return model


def explained(seed, partition, search, *, grid=(24, 31), density=0.05, baseline=None):
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(grid) < density, rng.standard_normal(grid) + 0.6, 0.0)
    image = np.ones((1, *grid)) + 0.01 * rng.random((1, *grid))
    return image, hshap.Explainer(
        weighted(weights),
        baseline=baseline or hshap.Constant(0.0),
        partition=partition,
        search=search,
    ).explain(image, target=0)


def flat_pixels(region, grid):
    place = np.arange(np.prod(grid)).reshape(grid)
    return frozenset(place[region.index].ravel().tolist())


def shown_leaves(tab, klass=0):
    found = tab.evaluate("(klass) => hshap.leaves(klass)", klass)
    return {
        frozenset(p for a, b in leaf["runs"] for p in range(a, b)): leaf["coefficient"]
        for leaf in found
    }


def expected_leaves(explanation):
    return {
        flat_pixels(leaf, explanation.grid): explanation.parts[leaf].coefficient
        for leaf in explanation.leaves
    }


def drawn(tab):
    """Wait until the page has drawn what was asked: it does so once a frame."""
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def point_at(tab, pixel, *, panel=0, click=False):
    camera = tab.evaluate("hshap.state().camera")
    frame = tab.locator(".screen").nth(panel).bounding_box()
    x = frame["x"] + (pixel[1] + 0.5 - camera["x"]) * camera["scale"]
    y = frame["y"] + (pixel[0] + 0.5 - camera["y"]) * camera["scale"]
    (tab.mouse.click if click else tab.mouse.move)(x, y)
    tab.evaluate("new Promise(requestAnimationFrame)")


def canvas_pixels(tab, layer, kind="canvas.layer"):
    """Return what a canvas shows; read from a copy, since Chromium warns of reading a fast one."""
    height, width, data = tab.evaluate(
        """([layer, kind]) => new Promise(requestAnimationFrame).then(() => {
             const shown = document.querySelectorAll(kind)[layer];
             const canvas = document.createElement("canvas");
             [canvas.width, canvas.height] = [shown.width, shown.height];
             const context = canvas.getContext("2d", {willReadFrequently: true});
             context.drawImage(shown, 0, 0);
             const {data} = context.getImageData(0, 0, shown.width, shown.height);
             let text = "";
             for (const byte of data) text += String.fromCharCode(byte);
             return [shown.height, shown.width, btoa(text)];
           })""",
        [layer, kind],
    )
    raw = np.frombuffer(base64.b64decode(data), np.uint8)
    return raw.reshape(height, width, 4)


def wait_until(tab, condition, seconds=30):
    """Wait for a condition in the page; its policy forbids that a script evaluates the text."""
    for _ in range(seconds * 20):
        if tab.evaluate(condition):
            return
        tab.wait_for_timeout(50)
    pytest.fail(f"{condition} did not come to pass")


def shown_boxes(tab, klass=0):
    """Return the findings on the page as `Explanation.boxes` does."""
    found = tab.evaluate("(klass) => hshap.findings().classes[klass].findings", klass)
    return [hshap.Finding(tuple(one["start"]), tuple(one["stop"]), one["score"]) for one in found]
