"""`hshap explain` that is stopped, killed or meets bad images keeps what it has finished."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
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
    assert "2 of 3 images are in found; run the same command with --resume" in done.stderr
    assert done.stdout == ""
    assert names() == of("a", "b")
    record = summary()
    assert (record["interrupted"], record["done"], record["total"]) == (True, 2, 3)
    assert "(2 of 3 images)" in Path("found/index.html").read_text()
    assert {each: signal.getsignal(each) for each in before} == before
    assert "pass --resume to go on" in explain(f"{name}:stopped", code=OUTPUT).stderr
    kept = files_below("found")
    monkeypatch.setenv("TEST_SIGNAL", "SIGCHLD")  # which is ignored
    explain(f"{name}:stopped", "--resume")
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
def test_stopped_with_force_keeps_old_files(name, monkeypatch):
    monkeypatch.setenv("TEST_SIGNAL", "SIGINT")
    explain(f"{name}:brightest")
    old = Path("found/c.npz").read_bytes()
    done = explain(f"{name}:stopped", "--force", code=130)
    assert "with --resume instead of --force to go on" in done.stderr
    assert names() == of("a", "b", "c")
    assert Path("found/c.npz").read_bytes() == old
    assert images_in() == ["a.png", "b.png"]
    explain(f"{name}:brightest", "--force", images=("images/a.png",))
    assert names() == of("a")


@pytest.mark.usefixtures("_interrupts")
def test_signals_wait_while_files_are_moved(name, monkeypatch):
    link, moved = os.link, []

    def interrupted(file, target):
        if not moved:
            os.kill(os.getpid(), signal.SIGINT)
        moved.append(target)
        link(file, target)

    monkeypatch.setattr(os, "link", interrupted)
    run(*words_of(f"{name}:brightest"))
    assert len(moved) == 8
    assert names() == of("a", "b", "c")
    assert images_in() == ["a.png", "b.png", "c.png"]


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
    assert names() == [".hshap-run"]
    done = explain(f"{name}:brightest", "--trust", code=OUTPUT)
    assert "its finished images are kept" in done.stderr
    assert "pass --resume to go on" in done.stderr
    assert images_in() == ["a.png", "b.png"]
    before = Path("found/a.npz").stat().st_mtime_ns
    one = ("images/a.png",)
    explain(f"{name}:stopped", "--trust", "--resume", images=one, code=USAGE)
    picture("images/c.png", 200)  # no longer one that kills
    explain(f"{name}:stopped", "--trust", "--resume")
    assert Path("found/a.npz").stat().st_mtime_ns == before
    assert images_in() == ["a.png", "b.png", "c.png"]
    assert not Path("found/.hshap-run").exists()
    found = {path.stem: hshap.Explanation.load(path).score for path in Path("found").glob("*.npz")}
    assert found == pytest.approx({"a": 100 / 255, "b": 120 / 255, "c": 200 / 255})


def test_a_killed_resumed_run_keeps_both(name):
    explain(f"{name}:stopped", "--trust", images=("images/a.png",))
    killed(name, "--resume")
    assert images_in() == ["a.png"]
    picture("images/c.png", 200)
    done = explain(f"{name}:stopped", "--trust", "--resume")
    assert "its finished images are kept" in done.stderr
    assert images_in() == ["a.png", "b.png", "c.png"]


def test_a_killed_run_with_force_sets_aside(name):
    explain(f"{name}:brightest", "--trust")
    before = {path.name: path.read_bytes() for path in Path("found").glob("*.npz")}
    killed(name, "--force")
    done = explain(f"{name}:brightest", "--trust", "--resume")
    aside = next(Path("found").glob("results-*"))
    assert str(aside) in done.stderr
    assert images_in(aside) == ["a.png", "b.png"]
    assert {path.name: path.read_bytes() for path in Path("found").glob("*.npz")} == before


def test_a_journal_leads_to_no_other_file(name):
    killed(name)
    journal = Path("found/.hshap-run/journal")
    first, second, *_ = journal.read_text().splitlines()
    line = json.loads(second)
    line["sha256"] = {"../../images/a.png": hashlib.sha256(b"").hexdigest()}
    journal.write_text("\n".join([first, json.dumps(line), second, '{"image": {"ima']))
    run(*words_of(f"{name}:brightest", "--trust"))
    assert images_in() == ["a.png"]
    assert Path("images/a.png").exists()


def journalled(out="found"):
    """Return the images that are finished by now, in the record and in the journal of a run."""
    journal, found = Path(out, ".hshap-run/journal"), set[str]()
    if Path(out, "summary.json").is_file():
        found |= set(images_in(out))
    for line in journal.read_text().splitlines()[1:] if journal.is_file() else ():
        with suppress(ValueError):  # the last line may be cut short
            found.add(Path(json.loads(line)["image"]["image"]).name)
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
            run(*words_of(f"{name}:brightest", "--trust", "--resume"))
            os._exit(0)
        time.sleep(rng.uniform(0.03, 0.25) * undisturbed)
        os.kill(child, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        kills += ended == -signal.SIGKILL
        now = journalled()
        assert finished <= now  # no finished image is lost
        finished = now
        if kills > 60:
            explain(f"{name}:brightest", "--trust", "--resume")
            finished = journalled()
    explain(f"{name}:brightest", "--trust", "--resume")
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
    explain(f"{name}:brightest", "--resume", images=two)
    module = sys.modules[name]
    module.calls.clear()
    explain(f"{name}:brightest", "--resume", images=two)
    assert sum(module.calls) < 40  # the number of outputs, two scores, and one image again
    picture("images/b.png", 200)
    Path("found/a.png").unlink()
    shown = sorted(Path("images").iterdir())
    found = json.loads(explain(f"{name}:brightest", "--resume", "--json", images=shown).stdout)
    scores = [one["explanations"][0]["score"] for one in found["images"]]
    assert scores == pytest.approx([100 / 255, 200 / 255, 1], abs=1e-6)
    assert names() == of("a", "b", "c")


def test_resume_refuses_another_run(name):
    explain(f"{name}:brightest")
    before = files_below("found")
    for words, images, said in (
        (("--tolerance", "50%"), ("images",), "made with another search"),
        (("--mean", "0.5"), ("images",), "made with another format"),
        ((), ("images/a.png",), "has results of b.png, which is not among the images"),
        (("--force",), ("images",), "--force and --resume exclude each other"),
    ):
        done = explain(f"{name}:brightest", "--resume", *words, images=images, code=USAGE)
        assert said in done.stderr
        assert files_below("found") == before
    written("mine/notes.txt", "mine")
    done = explain(f"{name}:brightest", "--resume", out="mine", code=OUTPUT)
    assert "has files but no results to resume" in done.stderr


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
    assert "No space left on device); 2 of 3 images are in found; run the same" in line_of(done)
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


def test_no_room_for_the_record_sets_aside(name, monkeypatch):
    write = Path.write_text

    def limited(path, *args, **options):
        if path.name == "summary.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", limited)
    done = explain(f"{name}:brightest", code=OUTPUT)
    (aside,) = Path("found").iterdir()
    assert f"finished images are in {aside}" in done.stderr
    assert names(aside) == [file for file in of("a", "b", "c") if file != "summary.json"]


# Bad images


def test_all_bad_images_are_told_first(name):
    for count in range(30):
        written(f"images/bad-{count:02}.png", "text")
    Path("empty").mkdir()
    lines = explain(f"{name}:brightest", code=INPUT).stderr.splitlines()
    assert [f"images/bad-{n:02}.png is not an image" in line for n, line in enumerate(lines)] == [
        *[True] * 20,
        *[False] * 2,
    ]
    assert lines[20:] == [
        "hshap: and 10 more",
        "hshap: 30 of 33 images cannot be used; pass --skip-bad to explain the other 3",
    ]
    several = ("empty", "images/bad-00.png", "nowhere.png", "images/a.png")
    told = explain(f"{name}:brightest", images=several, code=INPUT).stderr.splitlines()
    said = ("empty holds no images", "bad-00.png is not", "nowhere.png cannot be opened", "3 of")
    for line, part in zip(told, said, strict=True):
        assert part in line
    assert sys.modules[name].calls == []
    # Options are told before images.
    for words, part in ((("--baseline", "grey"), "--baseline grey"), (("--std", "0"), "std is")):
        assert part in line_of(explain(f"{name}:brightest", *words, code=USAGE))
    explain(f"{name}:brightest", "--skip-bad", images=("images/bad-00.png",), code=INPUT)
    assert not Path("found").exists()


def test_skip_bad_lists_the_rest(name):
    written("images/bad.png", "text")
    done = explain(f"{name}:brightest", "--skip-bad", "--json", code=SKIPPED)
    first, last = done.stderr.splitlines()
    assert first.startswith("hshap: skipped: images/bad.png is not an image")
    assert last == "hshap: 1 of 4 images were skipped; found/summary.json lists them"
    (skipped,) = json.loads(done.stdout)["skipped"]
    assert skipped["image"] == "images/bad.png"
    assert "is not an image" in skipped["reason"]
    assert summary()["skipped"] == [skipped]
    assert "(3 of 4 images)" in Path("found/index.html").read_text()
    assert names() == of("a", "b", "c")


TURNS_BAD = {
    "the model fails": ("fails", MODEL, "images/c.png"),
    "deleted": ("deletes", INPUT, "images/c.png cannot be opened"),
}


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("what", TURNS_BAD)
def test_images_that_turn_bad_fail_alone(name, what, skip):
    model, code, said = TURNS_BAD[what]
    # By a batch of all images too: the model then fails on a batch with good ones in it.
    words = ("--target", 0, "--batch-size", 64, *(["--skip-bad"] if skip else []))
    done = explain(f"{name}:{model}", *words, code=SKIPPED if skip else code)
    assert said in done.stderr
    assert names() == of("a", "b")
    assert summary()["skipped"][0]["image"] == "images/c.png"
    assert summary()["interrupted"] is False
    if not skip:
        assert "2 of 3 images are in found; run the same command with --resume" in done.stderr


def test_a_model_that_always_fails_is_given_up(name):
    for count in range(40):
        picture(f"images/{count}.png", 100)
    done = explain(f"{name}:always_fails", "--target", 0, code=MODEL)
    assert "20 of 43 images cannot be used; the run has given up" in done.stderr
    assert len(sys.modules[name].calls) == 21
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
