"""Concerns: each is said in one sentence with the next step, in the library and the command."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from oracle import any_marked, marked
from PIL import Image
from typer.testing import CliRunner

import hshap
from hshap.cli.app import app
from hshap.explanation.concerns import GRAVE, in_order
from hshap.export.page.tables import card, class_table, missed

SIDE = 8


def explained(model, *, partition=None, search=None, image=None):
    explainer = hshap.Explainer(
        model, hshap.Constant(0.0), partition or hshap.Dyadic(1), search or hshap.DepthFirst()
    )
    return explainer.explain(marked((SIDE, SIDE), [9]) if image is None else image, target=0)


def bare(batch):
    """Score every image by 1, and a mark by a little more."""
    return 1 + 0.1 * any_marked(batch)


def lowered(batch):
    """Score an image lower, the more marks it has."""
    return 1 - any_marked(batch)


def both(batch):
    """Need two pixels at once, which no part has alone."""
    return batch[:, 0, 0, 0] * batch[:, 0, -1, -1]


def mostly_spread(batch):
    """Score one pixel by 0.4, and every other one by a part of the rest."""
    return 0.4 * batch[:, 0, 1, 1] + 0.6 * batch[:, 0].mean(axis=(1, 2))


def wobbling():
    """A model with noise on its scores, which also differ from call to call."""
    rng = np.random.default_rng(0)
    with pytest.warns(RuntimeWarning, match="two scores for one input"):
        return explained(lambda batch: any_marked(batch) + rng.normal(0, 0.2, len(batch)))


ONES = np.ones((1, SIDE, SIDE))
CASES = {
    "random": (
        wobbling,
        "the model gave two scores for one input, so every number of this run is uncertain",
        "switch off dropout",
    ),
    "baseline": (
        lambda: explained(bare),
        r"the image scores 1\.1 and the baseline alone 1, so little of the score is explained",
        "pass a baseline without the object",
    ),
    "nothing": (
        lambda: explained(any_marked, search=hshap.DepthFirst(2.0)),
        "nothing was found",
        "lower the tolerance",
    ),
    "together": (
        lambda: explained(both, image=ONES, partition=hshap.Dyadic(4)),
        r"areas act together \(OR gap 1\.00\), so a finding may be .* in the wrong place",
        "compare with another baseline and another partition",
    ),
    "whole": (
        lambda: explained(any_marked, partition=hshap.Dyadic(SIDE)),
        "the findings cover 100% of the image",
        "allow smaller regions",
    ),
    "unfinished": (
        lambda: explained(any_marked, search=hshap.DepthFirst(max_evaluations=20)),
        "the search is incomplete: the budget left 1 region unsplit",
        "raise the budget",
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_each_concern_has_a_next_step(kind):
    make, text, fix = CASES[kind]
    found = make()
    (concern,) = [one for one in found.concerns if one.kind == kind]
    assert re.search(text, concern.text)
    assert fix in concern.fix
    told = (
        f"{found.how_sure.word}: {concern}" if concern == found.concerns[0] else f"also: {concern}"
    )
    assert told in repr(found)
    assert len(repr(found).splitlines()) <= 6
    html = found._repr_html_()
    assert concern.text.replace("'", "&#x27;") in html
    one = class_table("class", found)
    assert [one["why"], *one["concerns"]] == [str(each) for each in found.concerns]


def test_grave_concerns_end_the_trust():
    """Random scores, one score for all inputs, and an image below its baseline."""
    assert wobbling().how_sure.word == "do not trust"
    found = explained(lambda batch: np.full(len(batch), 0.7))
    assert "the model gave one score, 0.7, for every input of this run, " in found.concerns[0].text
    assert found.how_sure.word == "do not trust"
    first = explained(lowered).concerns[0]
    assert first.kind == "baseline"
    assert "does not speak for this target" in first.text


def test_less_is_told_as_less():
    """Two concerns at once, findings with little of the score, readings, and none at all."""
    found = explained(any_marked, image=ONES, search=hshap.DepthFirst(max_evaluations=20))
    assert {"whole", "unfinished"} <= {one.kind for one in found.concerns}
    found = explained(mostly_spread, image=ONES, search=hshap.DepthFirst(0.1))
    (concern,) = found.concerns
    assert concern.kind == "partial"
    assert re.match(r"the findings carry only \d\d% of the score that the image adds", concern.text)
    found = explained(lambda batch: batch[:, 0, 0, 0] - 0.8 * batch[:, 0, 6, 6], image=ONES)
    assert found.audit.cancelled == pytest.approx(0.8)
    assert "lacks 80% of the score" in str(found.concerns[0])
    found = explained(any_marked)
    assert found.concerns == ()
    assert found.how_sure.word == "supported"
    assert len(repr(found).splitlines()) == 1
    assert [one.kind for one in found.at(tolerance=2.0).concerns] == ["nothing"]
    told = str(explained(lambda batch: np.zeros(len(batch))).audit)
    assert "There are no findings." in told
    assert "carry" not in told


def shown(batch):
    return np.asarray(batch).reshape(len(batch), -1) > 0.5


NOISE = np.random.default_rng(0)
SANITY = {
    "ignores its input": (lambda batch: np.full(len(batch), 0.7), "baseline"),
    "random answers": (lambda batch: NOISE.random(len(batch)), "random"),
    "absence": (lambda batch: 1.0 - shown(batch)[:, 9], "baseline"),
    "both of two": (lambda batch: shown(batch)[:, [9, 60]].all(1) * 1.0, "together"),
    "one of two, not both": (lambda batch: shown(batch)[:, [9, 60]].sum(1) % 2 * 1.0, "together"),
    "one and not another": (lambda batch: shown(batch)[:, 9] * ~shown(batch)[:, 60], "together"),
    "spread evenly": (lambda batch: shown(batch).mean(1), "whole"),
    "any of two": (lambda batch: shown(batch)[:, [9, 60]].any(1) * 1.0, None),
    "a sum of two": (lambda batch: shown(batch)[:, [9, 60]].sum(1) * 1.0, None),
    "reads one quadrant": (
        lambda batch: shown(batch).reshape(-1, SIDE, SIDE)[:, :4, :4].mean((1, 2)),
        None,
    ),
}


@pytest.mark.filterwarnings("ignore:.*two scores for one input")
@pytest.mark.parametrize("partition", [hshap.Dyadic(1), hshap.Bisection(2), hshap.Dyadic("auto")])
@pytest.mark.parametrize("name", SANITY)
def test_the_true_concern_comes_first(name, partition):
    model, kind = SANITY[name]
    found = explained(model, image=ONES, partition=partition)
    assert [one.kind for one in found.concerns[:1]] == ([] if kind is None else [kind])
    if kind is None:
        assert found.how_sure.word == "supported"
    elif kind != "whole":
        assert found.how_sure.word == "do not trust"
        assert len(found.concerns) == 1  # nobody should read further


@pytest.mark.parametrize("seed", range(2))
def test_random_networks_are_not_trusted(seed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    layers = (torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1))
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8, 2)).eval()
    image = np.random.default_rng(seed).random((1, 16, 16)).astype(np.float32)
    found = hshap.Explainer(model, hshap.Constant(0.5), hshap.Dyadic(2)).explain(image, target=0)
    assert found.how_sure.word == "do not trust"


def generated(seed):
    """Explain a drawn model by a drawn search: tables, sums, ORs, ANDs, and some noise on them."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(16, rng.integers(1, 5), replace=False)
    table, weights = rng.random(2**16), rng.normal(size=16) * (rng.random(16) < 0.4)
    kinds = [
        lambda pixels: table[pixels @ (1 << np.arange(16))],
        lambda pixels: pixels @ weights,
        lambda pixels: pixels[:, chosen].any(1) * 1.0,
        lambda pixels: pixels[:, chosen].all(1) * 1.0,
        lambda pixels: pixels[:, chosen].sum(1) % 2 * 1.0,
        lambda pixels: pixels[:, chosen].any(1) - 0.4 * pixels.mean(1),
    ]
    kind, noise = kinds[rng.integers(len(kinds))], rng.choice([0.0, 0.0, 0.1])
    searches = [
        hshap.DepthFirst(float(rng.choice([0.0, 0.2, 0.6]))),
        hshap.DepthFirst(max_evaluations=20),
        hshap.BreadthFirst(50),
        hshap.GroupTesting(float(rng.choice([0.0, 0.2])), checks=int(rng.choice([0, 5]))),
        hshap.GroupTesting(max_evaluations=9),
    ]

    def model(batch):
        return kind(shown(batch)) + noise * table[::-1][shown(batch) @ (1 << np.arange(16))]

    partition = [hshap.Dyadic(1), hshap.Bisection(1), hshap.Dyadic("auto")][rng.integers(3)]
    search = searches[rng.integers(len(searches))]
    given = (hshap.Batched(model, check_batches=False), hshap.Constant(0.0), partition, search)
    return model, hshap.Explainer(*given).explain(np.ones((1, 4, 4)), target=0)


JUDGING = re.compile(
    r"may (add|be|have)|wrong|not trust|look twice|fail|passed|lower|hold", re.IGNORECASE
)


def test_badge_and_text_agree():
    words = []
    for seed in range(150):
        _, found = generated(seed)
        sure, concerns = found.how_sure, found.concerns
        words.append(sure.word)
        assert (sure.word == "supported") == (not concerns)
        assert (sure.word == "do not trust") == any(one.kind in GRAVE for one in concerns)
        assert concerns == in_order(concerns)
        if concerns:
            assert (sure.reason, sure.fix) == (concerns[0].text, concerns[0].fix)
        one = class_table("class", found)
        assert one["sure"] == sure.word == card(found, None, original=False)["sure"]
        assert f"{one['sure']}: {one['why']}" == str(sure)
        assert one["concerns"] == [str(each) for each in concerns[1:]]
        assert (str(sure) in repr(found)) == bool(concerns)
        # No other text that a reader sees beside the badge passes a verdict.
        beside = [one["missed"], one["text"], *([one["why"]] if not concerns else [])]
        assert not [text for text in beside if JUDGING.search(text)]
    assert min(map(words.count, ("supported", "look twice", "do not trust"))) > 10


def test_missed_areas_add_no_more():
    said = 0
    for seed in range(150):
        model, found = generated(seed)
        match = re.search("adds (?:more than (.*) )?to the score by itself", missed(found))
        if match is None:
            continue
        most = float(match[1] or 0)
        held = {*found.leaves, *(game.region for game in found.games)}
        for game in found.games:
            for part in game.children if game.region not in found.leaves else ():
                if part in held:
                    continue
                image = np.zeros((1, 1, 4, 4))
                image[0, 0][part.index] = 1.0
                assert float(model(image)[0]) - found.baseline_score <= most + 1e-6, seed
                said += 1
    assert said > 200


def test_spins_tell_concerns_of_members():
    one, other = (
        hshap.Explainer(model, hshap.Constant(0.0), hshap.Dyadic(1), hshap.DepthFirst(0.6))
        for model in (both, any_marked)
    )
    spin = hshap.cycle_spin(one, ONES, target=0, shifts=[0, 1])
    assert "concerns: together in 2, see members" in repr(spin)
    spin = hshap.cycle_spin(other, marked((SIDE, SIDE), [9]), target=0, shifts=[0, 1])
    assert "concern" not in repr(spin)


def test_texts_cannot_write_to_the_terminal():
    origin = "hidden pixels show \x1b[2J\n" + 5000 * "x"
    found = explained(any_marked)
    hostile = replace(found, settings=found.settings.updated(chosen=origin))
    assert all(line.isprintable() for line in repr(hostile).splitlines())
    assert len(repr(hostile)) < 2000
    assert hostile._repr_html_().isprintable()


MODELS = """
import numpy as np
def marked(batch):
    return (batch > 0.5).any(axis=(1, 2, 3)).astype(float)
def bare(batch):
    return 1 + 0.1 * marked(batch)
def lowered(batch):
    return 1 - marked(batch)
def both(batch):
    return (batch[:, 0, 0, 0] * batch[:, 0, -1, -1]).astype(float)
"""
GIVEN = ("--baseline", "constant:0", "--partition", "quadtree", "--tolerance", "0")
COMMANDS = {
    "baseline": ("bare", "dot.png", ("--min-size", "1")),
    "nothing": ("marked", "dot.png", ("--min-size", "1", "--tolerance", "2")),
    "together": ("both", "white.png", ("--min-size", "4")),
    "whole": ("marked", "dot.png", ("--min-size", "8")),
    "unfinished": ("marked", "dot.png", ("--min-size", "1", "--budget", "20")),
}


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder with models and two images; returns a function that runs the command."""
    runner = CliRunner()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"concerns_{abs(hash(str(tmp_path)))}"
    Path(f"{name}.py").write_text(MODELS)
    dot = np.zeros((SIDE, SIDE, 3), np.uint8)
    dot[1, 1] = 255
    Image.fromarray(dot).save("dot.png")
    Image.fromarray(np.full_like(dot, 255)).save("white.png")

    def run(model, *words):
        return runner.invoke(app, ["explain", "-m", f"{name}:{model}", *GIVEN, *words])

    return run


@pytest.mark.parametrize("kind", COMMANDS)
def test_the_command_tells_each_concern(work, kind):
    model, image, words = COMMANDS[kind]
    done = work(model, image, *words)
    assert done.exit_code == 0, done.stderr
    (one,) = json.loads(Path("hshap-output/summary.json").read_text())["images"][0]["explanations"]
    kinds = [concern["kind"] for concern in one["concerns"]]
    assert kind in kinds
    assert all(concern["text"] and concern["fix"] for concern in one["concerns"])
    first, word = one["concerns"][0], one["how_sure"]
    assert word != "supported"
    told = f"{word}: {first['text']}; {first['fix']}"
    assert f"hshap: {image}: {told}" in done.stderr
    assert re.sub(r"\s", "", f"{word} ({first['kind']})") in re.sub(r"[\s│┃|]", "", done.stdout)
    page = Path("hshap-output/index.html").read_text()
    assert all(concern["text"] in page for concern in one["concerns"])
    strict = work(model, image, *words, "--strict", "--force")
    assert strict.exit_code == 8
    assert Path("hshap-output/summary.json").exists()


def test_strict_is_fine_without_a_concern(work):
    done = work("marked", "dot.png", "--min-size", "1", "--strict")
    assert done.exit_code == 0, done.stderr
    assert not re.search("look twice|do not trust", done.stderr)
    assert "supported" in done.stdout
