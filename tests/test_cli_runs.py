"""`hshap explain` that is stopped, killed or meets bad images keeps what it has finished."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commands import (
    GIVEN,
    MODELS,
    Image,
    environment,
    files_below,
    fine,
    folder_of_user,
    names,
    picture,
    run,
    written,
)

import hshap
from hshap.cli.runs import result_folder

pytestmark = [
    pytest.mark.usefixtures("blank_pictures"),
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]

USAGE, INPUT, MODEL, OUTPUT, SKIPPED = 2, 3, 4, 5, 7
MODULE = f"""{MODELS}
def stopped(batch):
    if batch.max() > 0.9:
        os.kill(os.getpid(), getattr(signal, os.environ["TEST_SIGNAL"]))
        time.sleep(0 if os.environ["TEST_SIGNAL"] == "SIGCHLD" else 5)
    return brightest(batch)
def waits(batch):
    if batch.max() > 0.9:
        pathlib.Path("waiting").write_text("")
        time.sleep(600)
    return brightest(batch)
def fails(batch):
    if batch.max() > 0.9:
        raise RuntimeError("too bright")
    return brightest(batch)
def always_fails(batch):
    calls.append(len(batch))
    if len(calls) > 1:
        raise RuntimeError("never again")
    return batch.max(axis=(1, 2, 3))
def deletes(batch):
    pathlib.Path("images/c.png").unlink(missing_ok=True)
    return brightest(batch)
def unlike_the_scene(batch):
    scene = np.random.default_rng(0).integers(60, 200, (16, 16)) / 255
    return np.abs(batch - scene).max(axis=(1, 2, 3))
"""


@pytest.fixture
def name(tmp_path, monkeypatch):
    """The name of a module of models in the current folder, next to a folder of three images.

    Only the third image is bright.
    """
    with folder_of_user(tmp_path, monkeypatch, MODULE) as name:
        for letter, value in zip("abc", (100, 120, 255), strict=True):
            picture(f"images/{letter}.png", value)
        yield name


def words_of(model, *words, images=("images",), out="found"):
    # One input in a batch, so that an image is finished before the next one is begun.
    return ("explain", *images, "-m", model, *GIVEN, "--batch-size", 1, "--out", out, *words)


def explain(*given, code=0, **options):
    return fine(*words_of(*given, **options), code=code)


def summary(out="found"):
    return json.loads(Path(out, "summary.json").read_text())


def images_in(out="found"):
    """Return the images that the record of a run lists, and check that all its files are there."""
    record = summary(out)
    assert all(Path(out, file).is_file() for file in record["files"])
    return [Path(image["image"]).name for image in record["images"]]


def of(*stems):
    files = [f"{stem}{suffix}" for stem in stems for suffix in (".npz", ".png")]
    return sorted([*files, "index.html", "summary.json"])


def line_of(done):
    (line,) = done.stderr.splitlines()
    return line


# Stopped runs


@pytest.fixture
def _interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    closed = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGHUP, closed)


SIGNALS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}


def number(which):
    return getattr(signal, which)


@pytest.mark.usefixtures("_interrupts")
@pytest.mark.parametrize("which", SIGNALS)
def test_a_stopped_run_goes_on(name, which, monkeypatch):
    monkeypatch.setenv("TEST_SIGNAL", which)
    before = {number(each): signal.getsignal(number(each)) for each in SIGNALS}
    done = explain(f"{name}:stopped", code=128 + number(which))
    assert SIGNALS[which] in line_of(done)
    assert "2 of 3 images are in found; run the same command again to go on" in done.stderr
    assert done.stdout == ""
    assert names() == of("a", "b")
    record = summary()
    assert (record["interrupted"], record["done"], record["total"]) == (True, 2, 3)
    assert "(2 of 3 images)" in Path("found/index.html").read_text()
    assert {each: signal.getsignal(each) for each in before} == before
    kept = files_below("found")
    monkeypatch.setenv("TEST_SIGNAL", "SIGCHLD")  # which is ignored
    explain(f"{name}:stopped")
    assert names() == of("a", "b", "c")
    record = summary()
    assert (record["interrupted"], record["done"], record["total"]) == (False, 3, 3)
    assert images_in() == ["a.png", "b.png", "c.png"]
    for file in ("found/a.npz", "found/b.png"):
        assert Path(file).read_bytes() == kept[file]


@pytest.mark.parametrize(
    "which",
    ["SIGTERM", *(pytest.param(one, marks=pytest.mark.kills) for one in ("SIGINT", "SIGHUP"))],
)
def test_a_signal_from_outside_ends_it(name, which):
    def usual_signals():  # nohup and a shell without job control ignore some
        for each in (signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)

    command = [sys.executable, "-m", "hshap", *map(str, words_of(f"{name}:waits"))]
    process = subprocess.Popen(  # noqa: S603
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=usual_signals,  # noqa: PLW1509
    )
    with process:
        while not Path("waiting").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number(which))
        said, complaint = process.communicate()
    assert process.returncode == 128 + number(which)
    # On a slow machine there are lines of progress, too.
    told = [line for line in complaint.splitlines() if "hshap: explaining: " not in line]
    assert (said, len(told)) == ("", 1)
    assert names() == of("a", "b")
    assert summary()["interrupted"] is True


@pytest.mark.usefixtures("_interrupts")
def test_stopped_before_a_result_leaves_nothing(name, monkeypatch):
    monkeypatch.setenv("TEST_SIGNAL", "SIGINT")
    done = explain(f"{name}:stopped", images=("images/c.png",), out="x/y/found", code=130)
    assert done.stderr == "hshap: interrupted; nothing is written\n"
    assert not Path("x").exists()


@pytest.mark.usefixtures("_interrupts")
def test_a_second_interrupt_stops_at_once(name, monkeypatch):
    def slow(explanation, **how):  # called when the page and the record are written
        time.sleep(0.6)  # two signals within half a second count as one
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second signal was not heard")

    monkeypatch.setenv("TEST_SIGNAL", "SIGINT")
    monkeypatch.setattr(hshap.Explanation, "boxes", slow)
    done = explain(f"{name}:stopped", code=130)
    assert done.stderr == "hshap: interrupted; nothing is written\n"
    assert not Path("found").exists()


@pytest.mark.usefixtures("_interrupts")
def test_force_begins_anew(name, monkeypatch):
    monkeypatch.setenv("TEST_SIGNAL", "SIGINT")
    explain(f"{name}:brightest")
    explain(f"{name}:stopped", "--force", images=("images/c.png",), code=130)
    assert names() == of("a", "b", "c")  # without a new result, the old ones stay
    explain(f"{name}:stopped", "--force", code=130)
    assert names() == of("a", "b")
    assert images_in() == ["a.png", "b.png"]
    explain(f"{name}:brightest", "--force", images=("images/a.png",))
    assert names() == of("a")


@pytest.mark.usefixtures("_interrupts")
def test_signals_wait_while_files_are_moved(name, monkeypatch):
    link, moved = os.link, []

    def interrupted(file, target):
        if target.name == "a.npz":
            os.kill(os.getpid(), signal.SIGINT)
            moved.append(target)
        link(file, target)

    monkeypatch.setattr(os, "link", interrupted)
    run(*words_of(f"{name}:brightest"))
    assert len(moved) == 1
    assert names() == of("a")
    assert images_in() == ["a.png"]


@pytest.mark.usefixtures("_interrupts")
def test_handlers_of_others_stay(name, monkeypatch):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda which, frame: heard.append(which))
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    try:
        for which in ("SIGTERM", "SIGHUP"):
            monkeypatch.setenv("TEST_SIGNAL", which)
            explain(f"{name}:stopped", out=which)
            assert names(which) == of("a", "b", "c")
        assert set(heard) == {signal.SIGTERM}
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, ignored)


# Killed runs


def killed(name, *words):
    """Explain in a process of its own that the model kills on the third image."""
    child = os.fork()
    if not child:
        os.environ["TEST_SIGNAL"] = "SIGKILL"
        run(*words_of(f"{name}:stopped", "--trust", *words))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_killed_run_goes_on(name):
    killed(name)
    assert names() == sorted([".hshap-run", "a.npz", "a.png", "b.npz", "b.png"])
    before = Path("found/a.npz").stat().st_mtime_ns
    picture("images/c.png", 200)  # no longer one that kills
    explain(f"{name}:stopped", "--trust")
    assert Path("found/a.npz").stat().st_mtime_ns == before
    assert images_in() == ["a.png", "b.png", "c.png"]
    assert names() == of("a", "b", "c")
    found = {path.stem: hshap.Explanation.load(path).score for path in Path("found").glob("*.npz")}
    assert found == pytest.approx({"a": 100 / 255, "b": 120 / 255, "c": 200 / 255})


def test_a_killed_run_that_went_on_keeps_both(name):
    explain(f"{name}:stopped", "--trust", images=("images/a.png",))
    killed(name)
    assert images_in() == ["a.png"]
    picture("images/c.png", 200)
    explain(f"{name}:stopped", "--trust")
    assert images_in() == ["a.png", "b.png", "c.png"]


def test_files_that_were_not_moved_are_taken_up(name):
    killed(name)
    state = Path("found/.hshap-run")
    (state / "new").mkdir(exist_ok=True)
    shutil.move("found/b.npz", state / "new" / "b.npz")
    written(state / "new" / "c.npz", "half a file")
    before = Path("found/b.png").stat().st_mtime_ns
    picture("images/c.png", 200)
    explain(f"{name}:brightest", "--trust")
    assert Path("found/b.png").stat().st_mtime_ns == before
    assert names() == of("a", "b", "c")


def test_a_line_leads_to_no_other_file(name):
    killed(name)
    lines = Path("found/.hshap-run/lines.jsonl")
    run_line, first, second = lines.read_text().splitlines()
    line = json.loads(second)
    line["sha256"] = {"../../images/a.png": hashlib.sha256(b"").hexdigest()}
    lines.write_text("\n".join([run_line, first, json.dumps(line), '{"row": {"ima']))
    picture("images/c.png", 200)
    explain(f"{name}:brightest", "--trust")
    assert images_in() == ["a.png", "b.png", "c.png"]
    assert Path("images/a.png").exists()


def noted(out="found"):
    """Return the images that are finished by now, in the record and since."""
    lines, found = Path(out, ".hshap-run/lines.jsonl"), set[str]()
    if Path(out, "summary.json").is_file():
        found |= set(images_in(out))
    for line in lines.read_text().splitlines() if lines.is_file() else ():
        with suppress(ValueError, KeyError):  # the last line may be cut short
            found.add(Path(json.loads(line)["row"]["image"]).name)
    return found


@pytest.mark.kills
def test_kills_at_random_points_lose_nothing(name):
    for count in range(6):
        picture(f"images/{count}.png", 100 + 20 * count)
    explain(f"{name}:brightest", "--trust", images=("images/a.png",), out="first")  # imports
    begun = time.monotonic()
    explain(f"{name}:brightest", "--trust", out="whole")
    undisturbed = time.monotonic() - begun
    rng, kills, finished = random.Random(18), 0, set[str]()
    while len(finished) < 9 or (Path("found") / ".hshap-run").exists():
        child = os.fork()
        if not child:
            run(*words_of(f"{name}:brightest", "--trust"))
            os._exit(0)
        time.sleep(rng.uniform(0.03, 0.25) * undisturbed)
        os.kill(child, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        kills += ended == -signal.SIGKILL
        now = noted()
        assert finished <= now  # no finished image is lost
        finished = now
        if kills > 60:
            explain(f"{name}:brightest", "--trust")
            finished = noted()
    explain(f"{name}:brightest", "--trust")
    assert kills > 2
    assert images_in("found") == images_in("whole")
    assert names("found") == names("whole")
    for file in Path("whole").glob("*.npz"):
        one, other = (hshap.Explanation.load(Path(out, file.name)) for out in ("found", "whole"))
        assert one.leaves == other.leaves
        assert [g.values.tobytes() for g in one.games] == [g.values.tobytes() for g in other.games]


# Going on


def test_resume_explains_new_and_changed_images(name):
    two = ("images/a.png", "images/b.png")
    explain(f"{name}:brightest", images=two)
    module = sys.modules[name]
    module.calls.clear()
    explain(f"{name}:brightest", images=two)
    assert sum(module.calls) < 80  # probes alone
    picture("images/b.png", 200)
    Path("found/a.png").unlink()
    shown = sorted(Path("images").iterdir())
    found = json.loads(explain(f"{name}:brightest", "--json", images=shown).stdout)
    scores = [one["explanations"][0]["score"] for one in found["images"]]
    assert scores == pytest.approx([100 / 255, 200 / 255, 1], abs=1e-6)
    assert names() == of("a", "b", "c")


def test_other_settings_are_refused(name):
    explain(f"{name}:brightest")
    before = files_below("found")
    for words, said in (
        (("--tolerance", "50%"), "made with another search"),
        (("--mean", "0.5"), "reader.format.mean"),
    ):
        done = explain(f"{name}:brightest", *words, code=USAGE)
        assert said in done.stderr
        assert "or --force to replace its results" in done.stderr
        assert files_below("found") == before
    module = sys.modules[name]
    module.brightest = lambda batch: 0.5 * module.two(batch)[:, 0]
    assert "another model" in explain(f"{name}:brightest", code=USAGE).stderr
    written("mine/notes.txt", "mine")
    done = explain(f"{name}:brightest", out="mine", code=OUTPUT)
    assert "has files that hshap did not write" in done.stderr


def test_images_of_other_calls_stay(name):
    explain(f"{name}:brightest", images=("images/a.png", "images/b.png"))
    explain(f"{name}:brightest", images=("images/c.png",))
    assert images_in() == ["c.png", "a.png", "b.png"]
    Path("images/a.png").unlink()
    page = Path("found/index.html")
    explain(f"{name}:brightest")
    assert "b.png" in page.read_text()
    assert "a.png" not in page.read_text()  # its results stay
    assert names() == of("a", "b", "c")


# A full disk


def test_a_full_disk_keeps_finished_images(name, monkeypatch):
    save, calls = hshap.Explanation.save, []

    def limited(explanation, path):
        calls.append(path)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(explanation, path)

    monkeypatch.setattr(hshap.Explanation, "save", limited)
    done = explain(f"{name}:brightest", code=OUTPUT)
    assert "No space left on device" in line_of(done)
    assert "2 of 3 images are in found; run the same" in line_of(done)
    assert names() == of("a", "b")


def test_no_room_for_the_page_keeps_the_rest(name):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The page is larger than this and pictures are smaller.
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
    try:
        done = explain(f"{name}:brightest", code=OUTPUT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = "index.html cannot be written (File too large); all other results are kept"
    assert said in line_of(done)
    assert names() == [file for file in of("a", "b", "c") if file != "index.html"]
    assert summary()["page"] is None


def test_no_room_for_the_record_keeps_the_rest(name, monkeypatch):
    text = result_folder.as_json

    def limited(document):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(result_folder, "as_json", limited)
    done = explain(f"{name}:brightest", code=OUTPUT)
    assert "found cannot be written (No space left on device)" in line_of(done)
    monkeypatch.setattr(result_folder, "as_json", text)
    sys.modules[name].calls.clear()
    explain(f"{name}:brightest")
    assert sum(sys.modules[name].calls) < 80  # probes alone
    assert names() == of("a", "b", "c")


# Bad images


def test_bad_images_are_told_with_their_reasons(name):
    for count in range(30):
        written(f"bad/bad-{count:02}.png", "text")
    lines = explain(f"{name}:brightest", images=("bad",), code=INPUT).stderr.splitlines()
    assert all(f"bad/bad-{n:02}.png is not an image" in line for n, line in enumerate(lines[:20]))
    assert lines[20:] == [
        "hshap: and 10 more",
        "hshap: none of the first 30 images can be used",
    ]
    assert sys.modules[name].calls == []
    # Options are told before images.
    for words, part in ((("--baseline", "grey"), "--baseline grey"), (("--std", "0"), "std is")):
        assert part in line_of(explain(f"{name}:brightest", *words, code=USAGE))
    Path("empty").mkdir()
    explain(f"{name}:brightest", images=("empty",), code=INPUT)
    explain(f"{name}:brightest", images=("nowhere.png",), code=INPUT)
    assert not Path("found").exists()


def test_the_rest_is_explained_and_failures_are_listed(name):
    written("images/bad.png", "text")
    images = ("images", "nowhere.png")
    done = explain(f"{name}:brightest", "--json", images=images, code=SKIPPED)
    first, second, last = done.stderr.splitlines()
    assert first.startswith("hshap: failed: images/bad.png is not an image")
    assert second.startswith("hshap: failed: nowhere.png cannot be opened")
    assert last == "hshap: 2 of 5 images failed; found/summary.json lists them"
    failed, _ = json.loads(done.stdout)["skipped"]
    assert failed["image"] == "images/bad.png"
    assert "is not an image" in failed["reason"]
    assert summary()["skipped"][0] == failed
    assert "(3 of 5 images)" in Path("found/index.html").read_text()
    assert names() == of("a", "b", "c")


TURNS_BAD = {
    "the model fails": ("fails", "too bright"),
    "deleted": ("deletes", "images/c.png cannot be opened"),
}


@pytest.mark.parametrize("what", TURNS_BAD)
def test_images_that_turn_bad_fail_alone(name, what):
    model, said = TURNS_BAD[what]
    # By a batch of all images too: the model then fails on a batch with good ones in it.
    for count in range(4):
        picture(f"images/{count}.png", 100 + count)
    shown = [f"images/{each}.png" for each in (0, 1, 2, 3, "a", "b", "c")]
    words = ("--target", 0, "--batch-size", 64)
    done = explain(f"{name}:{model}", *words, images=shown, code=SKIPPED)
    assert said in done.stderr
    assert names() == of(0, 1, 2, 3, "a", "b")
    assert summary()["skipped"][0]["image"] == "images/c.png"
    assert summary()["interrupted"] is False


def test_a_failed_image_is_tried_again_on_request(name):
    words = ("--target", 0)
    explain(f"{name}:fails", *words, code=SKIPPED)
    module = sys.modules[name]
    module.fails = module.brightest
    explain(f"{name}:fails", *words, code=SKIPPED)
    explain(f"{name}:fails", *words, "--retry-failed")
    assert names() == of("a", "b", "c")


def test_a_model_that_always_fails_is_given_up(name):
    for count in range(40):
        picture(f"images/{count}.png", 100)
    done = explain(f"{name}:always_fails", "--target", 0, code=MODEL)
    assert "images cannot be used; the run has given up" in done.stderr
    assert not Path("found").exists()


# An image's answer does not depend on its neighbours


def scenes(count):
    """Write images of one scene, each with a spot of its own."""
    scene = np.random.default_rng(0).integers(60, 200, (16, 16))
    Path("scenes").mkdir()
    for each in range(count):
        pixels = np.repeat(scene[..., None], 3, axis=2).astype(np.uint8)
        row, column = divmod(each, 4)
        pixels[4 * row : 4 * row + 3, 4 * column : 4 * column + 3] = 255 if each % 2 else 0
        Image.fromarray(pixels).save(f"scenes/{each}.png")


def numbers_of(found):
    """Return all numbers of an explanation, to compare bit for bit."""
    values = [(game.values.tolist(), game.coefficients.tolist()) for game in found.games]
    heat = found.attribution().tolist()
    return found.grid, heat, found.evaluations, values, found.settings["baseline"]


def test_an_answer_is_the_same_in_any_company(name):
    scenes(6)
    model = ("-m", f"{name}:unlike_the_scene", "-t", 0)
    some = [f"scenes/{each}.png" for each in (5, 3, 0)]
    fine("explain", "scenes", *model, "--out", "all")
    fine("explain", *some, *model, "--out", "some")
    fine("run", "scenes", *model, "--out", "archive", "--model-id", "a")
    archive = hshap.runs.open("archive")
    assert len(archive) == 6  # all of them are explained
    for each in range(6):
        fine("explain", f"scenes/{each}.png", *model, "--out", f"{each}")
        alone = numbers_of(hshap.Explanation.load(f"{each}/{each}.npz"))
        assert numbers_of(hshap.Explanation.load(f"all/{each}.npz")) == alone
        assert numbers_of(archive[f"{each}.png"]) == alone
        if each in (0, 3, 5):
            assert numbers_of(hshap.Explanation.load(f"some/{each}.npz")) == alone
