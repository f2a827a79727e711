"""The page as people use it: gallery, findings, keys, reviews, addresses, folders and notebooks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browsers import (
    canvas_pixels,
    drawn,
    expected_leaves,
    explained,
    point_at,
    shown_boxes,
    shown_leaves,
    wait_until,
)
from oracle import any_marked, marked

import hshap
from hshap.export.page import View, write_page

pytestmark = [
    pytest.mark.browser,
]
AXE = Path(__file__).parent / "javascript" / "node_modules" / "axe-core" / "axe.min.js"
NOTE = '<b>old</b> scar & "more"'


@pytest.fixture(scope="module")
def plain():
    """An image and its explanation, with several findings."""
    return explained(3, hshap.Dyadic(2), hshap.DepthFirst())


def only(explanation, image, **options):
    return [View("x.png", image, {"one": explanation}, **options)]


def many(plain, count):
    image, explanation = plain
    return [View(f"image {number}.png", image, {"one": explanation}) for number in range(count)]


def pressed(tab, *keys):
    for key in keys:
        tab.keyboard.press(key)
        drawn(tab)


# The first line


def together(batch):
    """Score two pixels at once, which no part has alone."""
    return batch[:, 0, 0, 0] * batch[:, 0, 7, 7]


def untrusted():
    image = np.ones((1, 8, 8))
    return image, hshap.Explainer(together, hshap.Constant(0.0), hshap.Dyadic(2)).explain(image, 0)


RUNS = {
    "supported": lambda: (np.zeros((1, 8, 8)), hshap.demo.example()),
    "look twice": lambda: (np.zeros((1, 8, 8)), hshap.demo.example().at(tolerance=1e9)),
    "do not trust": untrusted,
}


def test_the_first_line_tells_how_sure(show):
    for word, make in RUNS.items():
        image, explanation = make()
        tab = show([View("x.png", image, {"lesion": explanation})])
        line = tab.inner_text("#first")
        shown = {"supported": "supported by every check"}.get(word, word)
        assert tab.inner_text(".badge") == shown
        assert word == explanation.how_sure.word
        count = len(explanation.boxes())
        assert f"{count} finding{'' if count == 1 else 's'}" in line
        assert explanation.how_sure.reason in line
        for told in explanation.concerns:
            assert (line + tab.inner_text("#concerns")).count(str(told)) == 1


def test_concerns_stand_in_the_gallery(show):
    image, fine = np.zeros((1, 8, 8)), hshap.demo.example()
    nothing = fine.at(tolerance=1e9)
    loose = replace(nothing, filled=0.1)
    assert [one.kind for one in loose.concerns] == ["nothing", "loose"]
    views = {"bad.png": {"a": nothing, "b": loose}, "good.png": {"a": fine}}
    tab = show([View(name, image, explanations) for name, explanations in views.items()])
    line = tab.locator("#concerns")
    assert line.text_content().startswith("1 of 2 images has a concern")
    tab.select_option("#filter-sure", "look twice")
    assert tab.locator("#cards strong").all_text_contents() == ["bad.png"]
    assert tab.locator(".card .badge").first.text_content() == "look twice"
    tab.locator(".card").first.click()
    tab.wait_for_selector(".panel")
    # Each is said once: the gravest beside the badge, the others below.
    assert line.text_content().splitlines() == [f"Also (b): {loose.concerns[1]}"]
    tab.evaluate("hshap.set(4)")
    assert line.text_content().startswith("Also, about the run as it was (b): ")
    tab.click("#next")
    tab.wait_for_selector(".panel")
    assert line.is_hidden()


# Looking


def test_the_pointer_tells_strength_and_place(show, plain):
    image, explanation = plain
    tab = show(only(explanation, image))
    leaf = explanation.leaves[0]
    point_at(tab, leaf.start)
    text = tab.inner_text("#region")
    assert f"{explanation.parts[leaf].coefficient:.4g}".rstrip("0") in text
    assert tab.locator("#region dd").nth(1).text_content() == "finding"
    assert f"x {leaf.start[1]} to {leaf.stop[1]}, y {leaf.start[0]} to {leaf.stop[0]}" in text
    # A click chooses the finding there.
    point_at(tab, leaf.start, click=True)
    drawn(tab)
    number = tab.evaluate("hshap.state().finding")
    box = explanation.boxes()[number]
    assert all(a <= c < b for a, c, b in zip(box.start, leaf.start, box.stop, strict=True))


def test_the_page_opens_on_the_strongest_finding(show, plain):
    image, explanation = plain
    tab = show(only(explanation, image), viewport={"width": 1440, "height": 900})
    drawn(tab)
    assert tab.get_attribute("#finding-1", "aria-current") == "true"
    total = explanation.score - explanation.baseline_score
    shares = [part.share for part in map(explanation.parts.get, explanation.leaves)]
    parts = [
        float(one["partOfScore"]) for one in tab.evaluate("hshap.findings().classes[0].findings")
    ]
    assert sum(parts) == pytest.approx(sum(shares) / total)
    assert "%" in tab.inner_text("#finding-1 .strength")
    # The whole image is in sight.
    camera, frame = tab.evaluate("hshap.state().camera"), tab.locator(".screen").bounding_box()
    assert frame["y"] + frame["height"] <= 900
    assert camera["y"] <= 0
    assert camera["y"] + frame["height"] / camera["scale"] >= 24


def test_keys_reach_and_do_everything(show, plain):
    tab = show(many(plain, 2))
    tab.locator(".card").first.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".panel")
    reached = set()
    tab.evaluate("document.body.focus()")
    for _ in range(80):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.id || document.activeElement.className"))
    wanted = {
        "to-gallery",
        "next",
        "screen",
        "finding-1",
        "hide",
        "layer-map",
        "colours",
        "opacity",
    }
    wanted |= {"window-level", "tolerance", "save-json", "save-reviews", "theme"}
    assert wanted <= reached
    tab.locator("#finding-2").focus()
    pressed(tab, "Enter")
    assert tab.evaluate("[hshap.state().finding, document.activeElement.id]") == [1, "finding-2"]
    pressed(tab, "Tab", "Enter")
    assert tab.get_attribute("#review-accepted", "aria-pressed") == "true"
    tab.locator(".screen").focus()
    before = tab.evaluate("hshap.state()")
    pressed(tab, "+", "ArrowRight", "ArrowDown", "n", "l")
    after = tab.evaluate("hshap.state()")
    assert after["camera"] != before["camera"]
    assert (after["finding"], after["layers"]["leaves"]) == (2, True)
    tab.locator("#tolerance").focus()
    pressed(tab, "PageUp")
    assert tab.evaluate("hshap.state().tolerance") > 0


def test_layers_can_be_hidden(show):
    image, explanation = explained(0, hshap.Dyadic(2), hshap.DepthFirst())
    truth = np.zeros((24, 31), bool)
    truth[3:9, 4:20] = True
    tab = show(only(explanation, image, truth=truth))

    def painted():
        drawn(tab)
        return int((canvas_pixels(tab, 1)[..., 3] > 0).sum())

    before = painted()
    for layer in ("leaves", "boxes"):
        tab.check(f"#layer-{layer}")
        before, last = painted(), before
        assert before > last, layer
    for place in ("#next", "#tolerance", ".screen"):
        tab.evaluate("(at) => document.querySelector(at).focus()", place)
        tab.keyboard.press("h")
        assert 0 < painted() < before / 3  # the scale bar stays
        tab.keyboard.press("h")
        assert painted() == before
    tab.locator("#tolerance-value").focus()
    tab.keyboard.press("h")  # a field takes the letter
    assert not tab.evaluate("hshap.state().hidden")
    for layer in ("map", "leaves", "boxes", "truth"):
        tab.uncheck(f"#layer-{layer}")
        before, last = painted(), before
        assert before != last, layer
    tab.check("#layer-checked")
    assert painted() > before


def test_sizes_have_the_unit_of_the_pixel_size(show):
    image, explanation = explained(0, hshap.Dyadic(8), hshap.DepthFirst())
    first = explanation.boxes()[0]
    high, wide = (b - a for a, b in zip(first.start, first.stop, strict=True))
    without = show(only(explanation, image))
    assert "µm" not in without.inner_text("#findings")
    tab = show(only(explanation, image, pixel_size=(0.5, 0.25), unit="µm"))
    tab.click("#finding-1")
    drawn(tab)
    size = f"{wide * 0.25:g} x {high * 0.5:g} µm"
    assert tab.inner_text("#finding-1").endswith(size)
    assert tab.inner_text("#found").endswith(size)
    found = tab.evaluate("hshap.findings()")
    assert (found["pixelSize"], found["unit"]) == ([0.5, 0.25], "µm")
    assert not np.array_equal(canvas_pixels(without, 1), canvas_pixels(tab, 1))  # the scale bar


def test_light_and_dark(show, plain):
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = (show(many(plain, 1), color_scheme=scheme) for scheme in ("light", "dark"))
    assert light.evaluate(ground) != dark.evaluate(ground)
    was = dark.evaluate(ground)
    light.click("#theme")
    assert light.evaluate(ground) == was
    dark.click("#theme")
    assert dark.evaluate(ground) != was


# Many images


def verdicts(view):
    return {one.how_sure.word for one in view.explanations.values()}


def test_the_gallery_sorts_filters_and_opens(show):
    views = []
    for seed in range(4):
        image, explanation = explained(seed, hshap.Dyadic(2), hshap.DepthFirst(0.1 * seed))
        found = explanation.saliency() > 0
        truth = {0: np.zeros(found.shape, bool), 1: found, 2: ~found}.get(seed)
        views.append(View(f"image {seed}.png", image, {"one": explanation}, truth=truth))
    nothing = hshap.Explainer(
        lambda batch: np.zeros(len(batch)), hshap.Constant(0.0), hshap.Dyadic(8)
    ).explain(image, 0)
    views.append(View("empty.png", image, {"one": nothing, "two": nothing}))
    tab = show(views)
    names = tab.locator("#cards strong").all_text_contents
    assert names() == [view.name for view in views]
    tab.select_option("#sort", "share")
    shares = {v.name: float((v.explanations["one"].saliency() > 0).mean()) for v in views}
    assert names() == sorted(shares, key=shares.get, reverse=True)
    tab.select_option("#sort", "overlap")  # images without objects are not the worst
    assert names()[:2] == ["image 2.png", "image 1.png"]
    texts = tab.locator("#cards .small").all_text_contents()
    assert ["overlap" in text for text in texts] == [True, True, False, False, False, False]
    assert texts[4] == "no finding"
    for control, value, expected in (
        ("#filter-class", "two", ["empty.png"]),
        ("#filter-class", "", names()),
    ):
        tab.select_option(control, value)
        assert names() == expected
    word = nothing.how_sure.word
    tab.select_option("#filter-sure", word)
    assert sorted(names()) == sorted(view.name for view in views if word in verdicts(view))
    tab.select_option("#filter-sure", "")
    tab.fill("#search", "IMAGE 2")
    assert names() == ["image 2.png"]
    tab.fill("#search", "")
    tab.select_option("#sort", "name")
    tab.locator(".card").nth(1).click()
    tab.wait_for_selector(".panel")
    assert tab.text_content("#where") == "image 0.png"
    assert shown_leaves(tab) == expected_leaves(views[0].explanations["one"])
    assert "overlap" not in tab.inner_text(".panel")
    tab.click("#next")
    tab.wait_for_selector(".panel")
    assert tab.text_content("#where") == "image 1.png"
    tab.click("#to-gallery")
    assert tab.locator("#cards li").count() == 5


def test_cards_are_filtered_by_probability(show):
    views = []
    for number, chance in enumerate((0.2, 0.9)):
        image = np.full((1, 8, 8), chance)
        made = hshap.Explainer(
            lambda batch: batch.mean(axis=(1, 2, 3)), hshap.Constant(0.0), hshap.Dyadic(4)
        ).explain(image, 0)
        views.append(View(f"{number}.png", image, {"cat": made}))
    tab = show(views)
    assert tab.locator(".klass").all_text_contents() == ["cat, 20 %", "cat, 90 %"]
    tab.fill("#filter-chance", "50")
    assert tab.locator("#cards strong").all_text_contents() == ["1.png"]
    tab.select_option("#sort", "probability")
    tab.fill("#filter-chance", "")
    assert tab.locator("#cards strong").all_text_contents() == ["1.png", "0.png"]


def test_images_of_a_folder_are_loaded_when_looked_at(show, plain):
    asked = []
    tab = show(iter(many(plain, 60)), form="folder")
    tab.on("request", lambda request: asked.append(request.url))
    near = "[...document.querySelectorAll('#cards canvas')].filter((one) => one.width).length"
    wait_until(tab, f"{near} > 3")
    assert tab.evaluate(near) < 40
    tab.locator("#cards li").nth(59).scroll_into_view_if_needed()
    wait_until(tab, f"{near} > 3")
    assert tab.evaluate(near) < 40  # those far above were dropped
    assert not [url for url in asked if "/view" in url]
    tab.locator(".card").nth(59).click()
    tab.wait_for_selector(".panel")
    drawn(tab)
    assert len([url for url in asked if "/view" in url]) == 1
    for number in (59, 3):
        tab.evaluate("(number) => hshap.open(number)", number)
        assert shown_boxes(tab) == plain[1].boxes()
    pressed(tab, "a")
    reviews = tab.evaluate("hshap.reviews()")["images"]
    assert {one["verdict"] for image in reviews for one in image["findings"]} == {"accepted"}
    assert len(reviews) == 60  # all of them are of one explanation


def test_an_open_page_never_mixes_with_a_newer(browser, plain, tmp_path):
    first, second, third = many(plain, 3)
    path = write_page(tmp_path / "p.html", [first, second, third], form="folder")
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(path.as_uri())
    tab.evaluate("hshap.ready")
    write_page(path, [third, first], form="folder")
    for number, view in ((2, third), (0, first)):  # they have other numbers on the new page
        tab.evaluate("(number) => hshap.open(number)", number)
        assert tab.evaluate("hshap.findings()")["image"] == view.name
    tab.evaluate("hshap.open(1)")
    told = tab.inner_text("#found")
    assert "view.js is missing; if the page was made again, load it again" in told
    assert "else keep the folder p_files beside it" in told
    context.close()


# Reviewing and saving


def test_reviews_are_kept_and_saved(visit, browser, plain, tmp_path):
    image, explanation = plain
    path = write_page(tmp_path / "r.html", only(explanation, image), title="t")
    context = browser.new_context()
    tab = visit(path, context=context)
    tab.locator("#findings .go").nth(1).click()
    drawn(tab)
    assert tab.evaluate("document.activeElement.id") == "finding-2"  # the focus stays
    pressed(tab, "a", "n", "r", "e")
    tab.keyboard.type(NOTE)
    pressed(tab, "Escape")
    tab.close()
    tab = visit(path, context=context)
    verdicts = tab.locator("#findings .verdict").all_inner_texts()
    assert verdicts[:3] == ["", "accepted", "rejected ✎"]
    tab.locator("#findings .go").nth(2).click()
    drawn(tab)
    assert tab.input_value("#review-note") == NOTE

    def saved(button):
        with tab.expect_download() as waiting:
            tab.click(button)
        return waiting.value.path()

    found = json.loads(saved("#save-json").read_text())["classes"][0]
    assert [(one["verdict"], one["note"]) for one in found["findings"][:3]] == [
        (None, ""), ("accepted", ""), ("rejected", NOTE),
    ]  # fmt: skip
    (reviews,) = json.loads(saved("#save-reviews").read_text())["images"]
    assert reviews["image"] == "x.png"
    assert sorted(one["verdict"] for one in reviews["findings"]) == ["accepted", "rejected"]
    with pytest.importorskip("PIL.Image").open(saved("#save-png")) as picture:
        assert len(picture.convert("RGB").getcolors(10**6)) > 5
    context.close()
    # They belong to this explanation, also on another page, and to no other one.
    context = browser.new_context()
    tab = visit(path, context=context)
    pressed(tab, "a")
    again = View("y.png", image, {"b": replace(explanation, seconds=99.0)})
    other = View("x.png", image, {"b": explained(4, hshap.Dyadic(2), hshap.DepthFirst())[1]})
    for view, verdict in ((again, {"", "accepted"}), (other, {""})):
        tab = visit(write_page(tmp_path / "a.html", [view]), context=context)
        assert set(tab.locator("#findings .verdict").all_inner_texts()) == verdict
    context.close()


# Addresses


def test_images_and_findings_have_addresses(show, visit, plain, tmp_path):
    image, explanation = plain
    name = "a b&finding=9#<i>.png"
    tab = show([View(name, image, {"one": explanation, "two": explanation}) for _ in range(3)])
    tab.locator(".card").nth(1).click()
    tab.wait_for_selector(".panel")
    pressed(tab, "p", "n")  # around the list to the last one, and on to the first
    pressed(tab, "n")
    address = tab.evaluate("location.hash")
    assert tab.evaluate("[hshap.state().number, hshap.state().finding]") == [1, 1]
    for state in ("finding === 0", "finding > 1", "finding === -1", "number === null"):
        tab.go_back()
        wait_until(tab, f"hshap.state().{state}")
    assert tab.locator(".card").count() == 3
    tab.go_forward()
    wait_until(tab, "hshap.state().number === 1")
    tab = visit(tmp_path / "page.html", address=address)
    assert tab.evaluate("[hshap.state().number, hshap.state().finding]") == [1, 1]
    tab.evaluate("hshap.open(2)")
    limits = "&class=2&tolerance=0.1"
    tab = visit(tmp_path / "page.html", address=tab.evaluate("location.hash") + limits)
    assert tab.evaluate("[hshap.state().number, hshap.state().current]") == [2, 1]
    assert tab.evaluate("hshap.state().tolerance") == 0.1
    for address in ("#image=none", "#finding=7", "#image=x.png&finding=99&tolerance=a"):
        tab = show(only(explanation, image), address=address)  # it leads nowhere
        assert tab.locator(".panel").count() == 1


# Layout, access and notebooks


def test_on_a_phone_the_image_stays_in_view(show, plain):
    tab = show(many(plain, 1), viewport={"width": 390, "height": 780})
    tab.evaluate("document.querySelector('#save-json').scrollIntoView()")
    frame = tab.locator(".screen").bounding_box()
    assert frame["y"] >= 0
    assert frame["y"] + frame["height"] <= 780
    assert frame["height"] > 180
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.locator("#save-json").is_visible()


@pytest.mark.parametrize(
    ("theme", "width", "height"), [("light", 1200, 800), ("dark", 390, 780)], ids=["desk", "phone"]
)
def test_axe_finds_no_fault(show, plain, theme, width, height):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; scripts/setup dev installs it where npm is")
    image, explanation = plain
    views = [
        View("x.png", image, {"one": explanation, "two": explanation}),
        View("y.png", np.ones((8, 8)), {"one": untrusted()[1]}),
    ]
    tab = show(
        views, color_scheme=theme, bypass_csp=True, viewport={"width": width, "height": height}
    )
    tab.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    for number in (None, 0, 1):
        tab.evaluate("(number) => hshap.open(number)", number)
        tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        if number is not None:
            tab.keyboard.press("n")
        drawn(tab)
        tab.wait_for_timeout(200)
        faults = tab.evaluate(
            "axe.run().then((found) => found.violations.map((one) => "
            "[one.id, one.help, one.nodes.map((node) => node.html + node.failureSummary)]))"
        )
        assert faults == []


def test_a_notebook_shows_the_page_in_place(browser, tmp_path):
    image = marked((16, 20), [5, 200])
    explainer = hshap.Explainer(any_marked, hshap.Constant(0.0), hshap.Dyadic(2))
    frame = explainer.explain(image, 0).view(image, name='a"<b>.png')
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{frame._repr_html_()}", encoding="utf-8")
    context = browser.new_context()
    tab = context.new_page()
    complaints = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(path.as_uri())
    inside = tab.frame_locator("iframe")
    inside.locator(".panel").wait_for()
    assert inside.locator("#where").inner_text() == 'a"<b>.png'
    inside.locator("#finding-1").click()
    inside.locator("#review-accepted").click()
    inside.locator(".verdict.accepted").wait_for()
    assert "before you close it" in inside.locator("#kept").inner_text()
    assert complaints == []
    context.close()
