"""Runs of the command line and the user's files: two at a time, stopped ones, bad images."""

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
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")

from typer.testing import CliRunner

import hshap
from hshap.cli.app import app
from hshap.cli.faults import Code, Refusal
from hshap.cli.runs.folders import folder, single
from hshap.cli.runs.locks import Owner, locked, this_process
from hshap.cli.runs.record import unchanged, write_summary
from hshap.cli.runs.signals import Stop, on_hold, stoppable

pytestmark = pytest.mark.usefixtures("blank_pictures")

MODELS = """
import os, pathlib, signal, time
calls = []
def brightest(batch):
    calls.append(len(batch))
    return batch.max(axis=(1, 2, 3))
def stopped(batch):
    if batch.max() > 0.9:
        os.kill(os.getpid(), getattr(signal, os.environ["TEST_SIGNAL"]))
        time.sleep(5)
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
    import numpy as np
    scene = np.random.default_rng(0).integers(60, 200, (16, 16)) / 255
    return np.abs(batch - scene).max(axis=(1, 2, 3))
def meddles(batch):
    pathlib.Path("found").mkdir(exist_ok=True)
    pathlib.Path("found/a.png").write_text("mine")
    return brightest(batch)
"""
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and links of POSIX")


# Nothing is left to choose, so that nothing is told of it.
GIVEN = ("--all", "--baseline", "constant:0", "--partition", "bisection", "--tolerance", "5%")


def picture(path, value=100):
    array = np.zeros((16, 16, 3), np.uint8)
    array[4:8, 4:8] = value
    Path(path).parent.mkdir(exist_ok=True)
    Image.fromarray(array).save(path)
    return Path(path)


@pytest.fixture
def name(tmp_path, monkeypatch):
    """The name of a module of models in the current folder, next to a folder of three images.

    Only the third image is bright.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, letter in enumerate("abc"):
        picture(f"images/{letter}.png", (100, 120, 255)[number])
    name = f"models_{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}"
    Path(f"{name}.py").write_text(MODELS)
    yield name
    sys.modules.pop(name, None)


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def explain(model, *words, images=("images",), out="found"):
    # One input in a batch, so that an image is finished before the next one is begun.
    common = (*GIVEN, "--min-size", 8, "--batch-size", 1, "--out", out)
    return run("explain", *images, "-m", model, *common, *words)


def without_concerns(text):
    """Return the lines but those on findings of 8 x 8 pixels around a smaller object."""
    about = "they may be much larger than the object"
    return [line for line in text.splitlines() if about not in line]


def fine(*words, **options):
    done = explain(*words, **options)
    assert done.exit_code == 0, done.stderr
    return done


def summary(out="found"):
    return json.loads(Path(out, "summary.json").read_text())


def names(path="found"):
    return sorted(file.name for file in Path(path).iterdir())


def contents(path):
    files = (file for file in sorted(Path(path).rglob("*")) if file.is_file())
    return {str(file): file.read_bytes() for file in files}


def of(*stems):
    files = [f"{stem}{suffix}" for stem in stems for suffix in (".npz", ".png")]
    return sorted([*files, "index.html", "summary.json"])


# Two runs at a time


def _usual_signals():
    """Undo nohup and a background job of a shell, which ignore signals."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def started(name, model, *words, out="found"):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "MPLBACKEND": "agg",
    }
    options = [*GIVEN, "--min-size", "8", "--batch-size", "1", "--out", out, *words]
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "hshap", "explain", "images", "-m", f"{name}:{model}", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell without job control lets its children ignore interrupts.
        preexec_fn=_usual_signals,  # noqa: PLW1509
    )


def until(condition, process):
    for _ in range(15_000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    pytest.fail("the process has not come so far")


@POSIX
def test_a_second_run_into_a_folder_is_told_at_once_and_a_killed_one_does_not_block(name):
    with started(name, "waits") as process:
        try:
            until(Path("waiting").exists, process)
            for words in ((), ("--force",), ("--resume",)):
                done = explain(f"{name}:no_such_model", *words)
                assert done.exit_code == Code.OUTPUT
                (line,) = done.stderr.splitlines()
                assert f"another run (process {process.pid} on " in line
            if hasattr(os, "symlink"):
                Path("link").symlink_to("found")
                assert "another run" in explain(f"{name}:brightest", out="link").stderr
        finally:
            process.kill()
        process.wait()
    assert names() == [".hshap-run"]  # nobody can clean up after SIGKILL
    assert "pass --resume to go on" in explain(f"{name}:brightest").stderr
    assert [name for name in names() if name.endswith(".npz")] == ["a.npz", "b.npz"]
    fine(f"{name}:brightest", "--force")
    assert names() == of("a", "b", "c")


def test_of_many_runs_at_one_moment_one_gets_the_folder(tmp_path):
    out, together, ended = tmp_path / "new" / "found", threading.Barrier(8), []

    def one(number):
        together.wait()
        try:
            with folder(out, fill=False) as place:
                (place.path / f"{number}.npz").write_text("")
                time.sleep(0.05)
            ended.append(number)
        except Refusal as refusal:
            assert refusal.code == Code.OUTPUT  # noqa: PT017

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = ended
    assert names(out) == [f"{winner}.npz"]


def test_of_many_writers_of_one_file_at_one_moment_one_gets_it(tmp_path):
    path, together, ended = tmp_path / "map.png", threading.Barrier(8), []

    def one(number):
        together.wait()
        try:
            with single(path, force=False) as staged:
                staged.write_text(str(number))
                time.sleep(0.05)
            ended.append(number)
        except Refusal as refusal:
            assert refusal.code == Code.OUTPUT  # noqa: PT017

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = ended
    assert path.read_text() == str(winner)
    assert names(tmp_path) == ["map.png"]


@pytest.mark.parametrize("force", [False, True])
def test_a_file_that_is_being_written_is_refused_also_with_force(tmp_path, force):
    path = tmp_path / "map.png"
    path.write_text("old")
    with single(path, force=True) as staged:
        said = "another run" if force else "exists already"
        with pytest.raises(Refusal, match=said), single(path, force=force):
            pytest.fail("two writers of one file")
        staged.write_text("new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["map.png"]


def write_late(path):
    with single(path, force=False) as staged:
        staged.write_text("new")
        path.write_text("of somebody else")


def test_a_file_that_appears_in_the_meantime_is_not_replaced(tmp_path):
    path = tmp_path / "map.png"
    with pytest.raises(Refusal, match="appeared in the meantime"):
        write_late(path)
    assert path.read_text() == "of somebody else"


def test_files_that_appear_during_a_run_are_not_replaced_and_no_result_is_lost(name):
    done = explain(f"{name}:meddles", "--baseline", "blur")
    assert done.exit_code == Code.OUTPUT
    (line,) = done.stderr.splitlines()
    (aside,) = (path for path in Path("found").iterdir() if path.is_dir())
    assert f"(appeared during the run); the results are in {aside}" in line
    assert Path("found/a.png").read_text() == "mine"
    assert names(aside) == of("a", "b", "c")


def lock_of(owner, folder="found"):
    lock = Path(folder, ".hshap-run")
    (lock / "results").mkdir(parents=True)
    (lock / "results" / "left.npz").write_text("")
    (lock / f"owner+{owner}").touch()


@POSIX
def test_the_lock_of_a_process_that_has_ended_is_taken_over(name):
    here = this_process()
    lock_of(Owner(here.machine, here.space, "999999999", "1"))
    fine(f"{name}:brightest")
    assert names() == of("a", "b", "c")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells when it started")
def test_a_lock_is_not_taken_for_that_of_a_later_process_of_the_same_number(name):
    here = this_process()
    lock_of(Owner(here.machine, here.space, here.process, "1"))
    fine(f"{name}:brightest")


@pytest.mark.parametrize("where", ["another machine", "nowhere"])
def test_a_lock_that_cannot_be_judged_is_told_with_the_folder_to_remove(name, where):
    here = this_process()
    lock_of(Owner("elsewhere", here.space, "1", "1"))
    if where == "nowhere":
        next(Path("found/.hshap-run").glob("owner*")).unlink()
    done = explain(f"{name}:brightest")
    assert done.exit_code == Code.OUTPUT
    assert "found/.hshap-run" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    shutil.rmtree("found/.hshap-run")
    fine(f"{name}:brightest")


def test_a_lock_without_signature_blocks_nobody(name):
    """A run that is killed between the making of its lock and its signature leaves this."""
    Path("found/.hshap-run").mkdir(parents=True)
    fine(f"{name}:brightest")
    assert names() == of("a", "b", "c")


def test_a_late_signature_withdraws(tmp_path, monkeypatch):
    """A run that is stopped before it signs finds its lock taken when it goes on."""
    lock, here = tmp_path / "lock", this_process()
    other, touch = Owner("elsewhere", here.space, "1", "1"), Path.touch

    def late(path, *given, **named):
        touch(lock / f"owner+{other}")
        touch(path, *given, **named)

    monkeypatch.setattr(Path, "touch", late)
    with pytest.raises(Refusal, match="another run"), locked(lock, tmp_path):
        pass
    assert names(lock) == [f"owner+{other}"]


def test_one_of_many_takes_over_the_lock_of_a_killed_run(tmp_path):
    here = this_process()
    (tmp_path / "lock").mkdir()
    owner = Owner(here.machine, here.space, "999999999", "1")
    (tmp_path / "lock" / f"owner+{owner}").touch()
    together, inside, most = threading.Barrier(8), [], []

    def one():
        together.wait()
        try:
            with locked(tmp_path / "lock", tmp_path):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.05)
                inside.pop()
        except Refusal:
            pass

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most
    assert max(most) == 1
    assert names(tmp_path) == []


# Inputs


def linked(path, target):
    Path(path).symlink_to(Path(target).absolute())
    return path


def hard_linked(folder, target):
    Path(folder).mkdir()
    os.link(target, Path(folder, "x.png"))
    return folder


def upper(path):
    if not Path(path.upper()).exists():
        pytest.skip("the file system tells upper case from lower case")
    return path.upper()


HOLDS = {
    "the image folder": lambda: (("images",), "images", ()),
    "a link to it": lambda: (("images",), linked("l", "images"), ()),
    "by way of dots": lambda: (("images",), "images/../images", ()),
    "in another case": lambda: (("images",), upper("images"), ()),
    "an image": lambda: (("images/a.png",), "images", ()),
    "a hard link to an image": lambda: (("images/a.png",), hard_linked("h", "images/a.png"), ()),
    "the target of a link": lambda: ((linked("l.png", "images/a.png"),), "images", ()),
    "the baseline": lambda: ((picture("x/y.png"),), "images", ("--baseline", "images/a.png")),
    "the folder of the mean": lambda: (("x",), "images", ("--baseline", "mean:images")),
    "the configuration": lambda: (("images",), "c", ("--config", written("c/c.toml", ""))),
    "the names of classes": lambda: (("images",), "c", ("--classes", written("c/c.txt", "one"))),
}


def written(path, text):
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(text)
    return path


@POSIX
@pytest.mark.parametrize("what", HOLDS)
@pytest.mark.parametrize("force", [(), ("--force",), ("--resume",)])
def test_an_input_is_never_written_over(name, what, force):
    picture("x/x.png")
    images, out, words = HOLDS[what]()
    before = contents(".")
    done = explain(f"{name}:brightest", *words, *force, images=images, out=out)
    assert done.exit_code == Code.OUTPUT
    (line,) = done.stderr.splitlines()
    assert "never written over; pass another --out" in line
    assert contents(".") == before
    assert not list(Path().rglob(".hshap*"))


def test_a_model_file_is_never_written_over(name):
    Path("m").mkdir()
    Path("m/a.npz").write_text("a model")
    done = explain("m/a.npz", "--trust", "--force", out="m")
    assert done.exit_code == Code.OUTPUT
    assert "has the input m/a.npz in it" in done.stderr


def test_a_folder_named_like_a_baseline_is_no_input(name):
    Path("blur").mkdir()
    fine(f"{name}:brightest", "--baseline", "blur", images=("images/a.png",), out="blur")


def test_results_inside_the_image_folder_do_not_become_inputs(name):
    for words in ((), ("--force",)):
        fine(f"{name}:brightest", *words, out="images/found")
        assert names("images/found") == of("a", "b", "c")
    # As a shell expands images/*
    done = fine(f"{name}:brightest", images=sorted(Path("images").iterdir()), out="other")
    assert "images/found: 3 pictures of an earlier run are no images to explain" in done.stderr
    assert names("other") == of("a", "b", "c")


def publish(out, *names):
    """Write a run with these files, as `hshap explain` writes those of a large page."""
    with folder(out, fill=True) as place:
        for name in names:
            file = place.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f'hshapPart("{name}", "written by hshap");')
        write_summary(place.path, {"hshap": "0", "command": "explain"}, {})


def files_below(out):
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def test_the_folder_of_a_large_page_goes_with_the_page(tmp_path):
    out = tmp_path / "found"
    mark = "index_files/hshap-page.txt"
    first = [mark, *(f"index_files/{n}/{kind}.js" for n in range(3) for kind in ("view", "thumb"))]
    publish(out, *first)
    assert files_below(out) == {*first, "summary.json"} == set(unchanged(out))
    (out / "index_files" / "mine.txt").write_text("of the user")
    publish(out, *first[:5])
    assert files_below(out) == {*first[:5], "summary.json", "index_files/mine.txt"}
    assert not (out / "index_files" / "2").exists()
    changed = out / "index_files" / "1" / "view.js"
    changed.write_text("hshapPart( changed by the user")
    with pytest.raises(Refusal, match=r"view\.js"):
        publish(out, *first)
    assert changed.read_text() == "hshapPart( changed by the user"


@POSIX
@pytest.mark.parametrize("link", ["index_files", "index_files/0"])
def test_the_folder_of_a_page_is_never_written_through_a_link(tmp_path, link):
    out, elsewhere = tmp_path / "found", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (out / link).parent.mkdir(parents=True)
    (out / link).symlink_to(elsewhere)
    with pytest.raises(Refusal):
        publish(out, "index_files/0/view.js")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../x.js", "index_files/../x.js", "index_files/../../x.js", "other/x.js", "/x.js"]
)
def test_a_record_cannot_lead_out_of_its_folder(tmp_path, name):
    out = tmp_path / "a" / "found"
    (out / "index_files").mkdir(parents=True)
    (out / "other").mkdir()
    text = "hshapPart(written by hshap"
    for place in (tmp_path / "a" / "x.js", tmp_path / "x.js", out / "x.js", out / "other" / "x.js"):
        place.write_text(text)
    record = {"hshap": "0", "command": "explain"}
    digests = {name: hashlib.sha256(text.encode()).hexdigest()}
    (out / "summary.json").write_text(json.dumps({**record, "sha256": digests}))
    assert set(unchanged(out)) == {"summary.json"}


def test_force_replaces_files_of_an_earlier_run_and_no_others(name):
    fine(f"{name}:brightest")
    Path("found/a.png").write_text("changed by the user")
    shutil.copy("found/b.npz", "found/aa.npz")  # of hshap, but of another name: the user's
    Path("found/b.npz").unlink()
    Path("found/b.npz").mkdir()
    fine(f"{name}:brightest", "--force", images=("images/a.png", "images/b.png"))
    assert Path("found/a.png").read_text() == "changed by the user"
    assert names() == sorted([*of("a-2", "b-2"), "a.png", "aa.npz", "b.npz"])


@pytest.mark.parametrize("how", ["names alone", "digests", "beyond the folder", "not JSON at all"])
def test_a_record_that_lists_the_user_s_files_does_not_remove_them(name, how):
    fine(f"{name}:brightest", images=("images/a.png",))
    mine = [picture("found/photo.png"), Path("photo.npz"), Path("found/page.html")]
    mine[1].write_text("mine")
    mine[2].write_text("<h1>mine</h1>")
    record = summary()
    listed = {
        "names alone": {path.name: "" for path in mine},
        "digests": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in mine},
        "beyond the folder": {
            "../photo.npz": hashlib.sha256(b"mine").hexdigest(),
            str(Path("photo.npz").absolute()): hashlib.sha256(b"mine").hexdigest(),
            "..": 1,
            "a\0b.png": "",
        },
        "not JSON at all": {},
    }[how]
    record["sha256"] |= listed
    record["files"] += list(listed)
    text = "[" * 100_000 if how == "not JSON at all" else json.dumps(record)
    Path("found/summary.json").write_text(text)
    before = [path.read_bytes() for path in mine]
    done = explain(f"{name}:brightest", "--force", images=("images/b.png",))
    assert [path.read_bytes() for path in mine] == before
    if how == "not JSON at all":
        assert done.exit_code == Code.OUTPUT
        assert "was not written by hshap, or has changed since" in done.stderr
    else:
        assert done.exit_code == 0, done.stderr
        assert not Path("found/a.png").exists()


@POSIX
def test_a_pipe_or_a_link_as_record_is_neither_waited_for_nor_followed(tmp_path):
    os.mkfifo(tmp_path / "summary.json")
    assert unchanged(tmp_path) == {}
    (tmp_path / "summary.json").unlink()
    (tmp_path / "other").mkdir()
    write_summary(tmp_path / "other", {"hshap": "", "command": ""}, {})
    (tmp_path / "summary.json").symlink_to(tmp_path / "other" / "summary.json")
    assert unchanged(tmp_path) == {}


@POSIX
@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("export", "a.npz", "-f", "coco"), "a.npz"),
        (("export", "a.npz", "b.npz", "-f", "coco"), "b.npz"),
        (("export", "a.npz", "-f", "png"), "./../here/a.npz"),
        (("compare", "a.npz", "b.npz"), "b.npz"),
        (("view", "a.npz"), "link"),
        (("view", "a.npz", "images/a.png", "--resize"), "images/a.png"),
        (("view", "a.npz", "images/a.png", "--resize"), "hard"),
    ],
)
def test_one_file_is_never_written_over_an_input(name, words, out, tmp_path, monkeypatch):
    Path("here").mkdir()
    shutil.move("images", "here/images")
    monkeypatch.chdir(tmp_path / "here")
    for file in ("a.npz", "b.npz"):
        hshap.demo.example().save(file)
    linked("link", "a.npz")
    os.link("images/a.png", "hard")
    before = contents(".")
    done = run(*words, "--out", out, "--force")
    assert done.exit_code == Code.OUTPUT
    assert "never written over; pass another --out" in done.stderr
    assert contents(".") == before


@POSIX
def test_one_file_follows_links_and_keeps_a_private_file_private(tmp_path):
    path, link = tmp_path / "map.png", tmp_path / "link.png"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    with single(link, force=True) as staged:
        staged.write_text("new")
        assert staged.parent.stat().st_mode & 0o077 == 0
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refusal, match="is a pipe"), single(tmp_path / "pipe", force=True):
        pass


def test_a_file_of_the_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("x" * 250 + ".png")
    with single(path, force=False) as staged:
        staged.write_text("new")
    assert names(tmp_path) == [path.name]


def test_file_systems_without_hard_links_keep_files_of_others_too(tmp_path, monkeypatch):
    def no_links(*paths):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "map.png"
    with single(path, force=False) as staged:
        staged.write_text("new")
    assert path.read_text() == "new"
    path.unlink()
    with pytest.raises(Refusal, match="appeared"):
        write_late(path)
    assert path.read_text() == "of somebody else"


# Stopped runs


@pytest.fixture
def _interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    closed = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGHUP, closed)


SIGNALS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}


@POSIX
@pytest.mark.usefixtures("_interrupts")
@pytest.mark.parametrize("which", SIGNALS)
def test_a_stopped_run_keeps_finished_images_and_goes_on_with_resume(name, which, monkeypatch):
    monkeypatch.setenv("TEST_SIGNAL", which)
    before = {number: signal.getsignal(number) for number in map(_number, SIGNALS)}
    done = explain(f"{name}:stopped")
    assert done.exit_code == 128 + _number(which)
    (line,) = done.stderr.splitlines()
    assert SIGNALS[which] in line
    assert "2 of 3 images are in found; run the same command with --resume to go on" in line
    assert done.stdout == ""
    assert names() == of("a", "b")
    record = summary()
    assert (record["interrupted"], record["done"], record["total"]) == (True, 2, 3)
    assert "(2 of 3 images)" in Path("found/index.html").read_text()
    assert {number: signal.getsignal(number) for number in before} == before

    assert "pass --resume to go on" in explain(f"{name}:stopped").stderr
    kept = contents("found")
    monkeypatch.setenv("TEST_SIGNAL", "SIGCHLD")  # which is ignored
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    fine(f"{name}:stopped", "--resume")
    assert names() == of("a", "b", "c")
    record = summary()
    assert (record["interrupted"], record["done"], record["total"]) == (False, 3, 3)
    assert [Path(one["image"]).name for one in record["images"]] == ["a.png", "b.png", "c.png"]
    for file in ("found/a.npz", "found/b.png"):
        assert Path(file).read_bytes() == kept[file]


def _number(which):
    return getattr(signal, which)


@POSIX
@pytest.mark.parametrize("which", SIGNALS)
def test_a_signal_from_outside_ends_the_real_command(name, which):
    with started(name, "waits") as process:
        until(Path("waiting").exists, process)
        process.send_signal(_number(which))
        said, complaint = process.communicate()
    assert process.returncode == 128 + _number(which)
    # On a slow machine there are lines of progress, too.
    told = [line for line in complaint.splitlines() if "hshap: explaining: " not in line]
    assert (said, len(told)) == ("", 1)
    assert names() == of("a", "b")
    assert summary()["interrupted"] is True


@POSIX
def test_a_closed_terminal_leaves_finished_images_and_no_hidden_folder(name):
    import pty

    child, terminal = pty.fork()
    if child == 0:
        _usual_signals()
        words = ["explain", "images", "-m", f"{name}:waits", "--min-size", "8"]
        words += ["--all", "--batch-size", "1", "--out", "found"]
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
        os.execv(sys.executable, [sys.executable, "-m", "hshap", *words])  # noqa: S606
    ended = 0
    while not Path("waiting").exists() and not ended:
        time.sleep(0.02)
        ended, _ = os.waitpid(child, os.WNOHANG)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert names() == of("a", "b")


@POSIX
@pytest.mark.usefixtures("_interrupts")
def test_a_run_stopped_before_the_first_result_leaves_nothing(name, monkeypatch):
    monkeypatch.setenv("TEST_SIGNAL", "SIGINT")
    done = explain(f"{name}:stopped", images=("images/c.png",), out="x/y/found")
    assert done.exit_code == 130
    assert done.stderr == "hshap: interrupted; nothing is written\n"
    assert not Path("x").exists()


@POSIX
@pytest.mark.usefixtures("_interrupts")
def test_a_second_interrupt_stops_at_once_and_leaves_no_hidden_folder(name, monkeypatch):
    def slow(explanation, **how):  # called when the page and the record are written
        time.sleep(0.6)  # two signals within half a second count as one
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second signal was not heard")

    monkeypatch.setenv("TEST_SIGNAL", "SIGINT")
    monkeypatch.setattr(hshap.Explanation, "boxes", slow)
    done = explain(f"{name}:stopped")
    assert done.exit_code == 130
    assert done.stderr == "hshap: interrupted; nothing is written\n"
    assert not Path("found").exists()


@POSIX
@pytest.mark.usefixtures("_interrupts")
def test_a_stopped_run_with_force_keeps_files_of_the_run_before(name, monkeypatch):
    monkeypatch.setenv("TEST_SIGNAL", "SIGINT")
    fine(f"{name}:brightest")
    old = Path("found/c.npz").read_bytes()
    done = explain(f"{name}:stopped", "--force")
    assert done.exit_code == 130
    assert "with --resume instead of --force to go on" in done.stderr
    assert names() == of("a", "b", "c")
    assert Path("found/c.npz").read_bytes() == old
    assert [Path(one["image"]).name for one in summary()["images"]] == ["a.png", "b.png"]
    fine(f"{name}:brightest", "--force", images=("images/a.png",))
    assert names() == of("a")


@POSIX
@pytest.mark.usefixtures("_interrupts")
def test_signals_wait_while_files_are_moved(monkeypatch):
    with pytest.raises(Stop, match="interrupted"), stoppable():  # noqa: PT012
        with on_hold():
            os.kill(os.getpid(), signal.SIGINT)
            moved = True
        pytest.fail("the signal was lost")
    assert moved


@POSIX
@pytest.mark.usefixtures("_interrupts")
def test_handlers_of_others_and_ignored_signals_stay():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, ignored)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(_entered()))
    thread.start()
    thread.join()
    assert seen == [True]


def _entered():
    with stoppable(), on_hold():
        return True


# Going on


def test_resume_explains_new_and_changed_images_alone(name):
    fine(f"{name}:brightest", "--resume", images=("images/a.png", "images/b.png"))
    module = sys.modules[name]
    module.calls.clear()
    fine(f"{name}:brightest", "--resume", images=("images/a.png", "images/b.png"))
    assert sum(module.calls) < 40  # the number of outputs, two scores, and one image again
    picture("images/b.png", 200)
    Path("found/a.png").unlink()
    done = fine(f"{name}:brightest", "--resume", "--json", images=sorted(Path("images").iterdir()))
    found = json.loads(done.stdout)
    scores = [one["explanations"][0]["score"] for one in found["images"]]
    assert scores == pytest.approx([100 / 255, 200 / 255, 1], abs=1e-6)
    assert names() == of("a", "b", "c")


@pytest.mark.parametrize(
    ("words", "images", "said"),
    [
        (("--tolerance", "50%"), ("images",), "made with another search"),
        (("--mean", "0.5"), ("images",), "made with another format"),
        ((), ("images/a.png",), "has results of b.png, which is not among the images"),
        (("--force",), ("images",), "--force and --resume exclude each other"),
    ],
)
def test_resume_refuses_other_settings_and_missing_images(name, words, images, said):
    fine(f"{name}:brightest")
    before = contents("found")
    done = explain(f"{name}:brightest", "--resume", *words, images=images)
    assert done.exit_code == Code.USAGE
    assert said in done.stderr
    assert contents("found") == before


def test_resume_needs_results_to_go_on_with(name):
    written("found/notes.txt", "mine")
    done = explain(f"{name}:brightest", "--resume")
    assert done.exit_code == Code.OUTPUT
    assert "has files but no results to resume" in done.stderr


# A full disk


def test_a_disk_that_fills_up_keeps_finished_images(name, monkeypatch):
    save, calls = hshap.Explanation.save, []

    def limited(explanation, path):
        calls.append(path)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(explanation, path)

    monkeypatch.setattr(hshap.Explanation, "save", limited)
    done = explain(f"{name}:brightest")
    assert done.exit_code == Code.OUTPUT
    (line,) = done.stderr.splitlines()
    assert "No space left on device); 2 of 3 images are in found; run the same" in line
    assert names() == of("a", "b")


@POSIX
def test_a_disk_without_room_for_the_page_keeps_the_rest(name):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The page is larger than this and pictures are smaller.
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
    try:
        done = explain(f"{name}:brightest")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.exit_code == Code.OUTPUT
    (line,) = without_concerns(done.stderr)
    assert "index.html cannot be written (File too large); all other results are kept" in line
    assert names() == [n for n in of("a", "b", "c") if n != "index.html"]
    assert summary()["page"] is None


def test_a_disk_without_room_for_the_record_sets_the_results_aside(name, monkeypatch):
    write = Path.write_text

    def limited(path, *args, **options):
        if path.name == "summary.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", limited)
    done = explain(f"{name}:brightest")
    assert done.exit_code == Code.OUTPUT
    (aside,) = Path("found").iterdir()
    assert f"finished images are in {aside}" in done.stderr
    assert names(aside) == [n for n in of("a", "b", "c") if n != "summary.json"]


# Bad images


def test_all_bad_images_are_told_at_once_before_the_model_is_called(name):
    for number in range(30):
        written(f"images/bad-{number:02}.png", "text")
    done = explain(f"{name}:brightest")
    assert done.exit_code == Code.INPUT
    lines = done.stderr.splitlines()
    assert [f"images/bad-{n:02}.png is not an image" in line for n, line in enumerate(lines)] == [
        *[True] * 20,
        *[False] * 2,
    ]
    assert lines[20:] == [
        "hshap: and 10 more",
        "hshap: 30 of 33 images cannot be used; pass --skip-bad to explain the other 3",
    ]
    assert sys.modules[name].calls == []
    assert not Path("found").exists()


def test_bad_folders_and_missing_files_are_told_with_the_others(name):
    Path("empty").mkdir()
    written("images/bad.png", "text")
    done = explain(f"{name}:brightest", images=("empty", "images", "nowhere.png"))
    assert done.exit_code == Code.INPUT
    said = (
        "empty holds no images",
        "images/bad.png is not",
        "nowhere.png cannot be opened",
        "3 of",
    )
    for line, part in zip(done.stderr.splitlines(), said, strict=True):
        assert part in line


def test_options_are_told_before_images(name):
    written("images/bad.png", "text")
    for words, said in ((("--baseline", "grey"), "--baseline grey"), (("--std", "0"), "std is")):
        done = explain(f"{name}:brightest", *words)
        assert done.exit_code == Code.USAGE
        assert len(done.stderr.splitlines()) == 1
        assert said in done.stderr


def test_skip_bad_explains_the_others_and_lists_the_rest(name):
    written("images/bad.png", "text")
    done = explain(f"{name}:brightest", "--skip-bad", "--json")
    assert done.exit_code == Code.SKIPPED == 7
    first, last = without_concerns(done.stderr)
    assert first.startswith("hshap: skipped: images/bad.png is not an image")
    assert last == "hshap: 1 of 4 images were skipped; found/summary.json lists them"
    (skipped,) = json.loads(done.stdout)["skipped"]
    assert skipped["image"] == "images/bad.png"
    assert "is not an image" in skipped["reason"]
    assert summary()["skipped"] == [skipped]
    assert "(3 of 4 images)" in Path("found/index.html").read_text()
    assert names() == of("a", "b", "c")


def test_skip_bad_without_any_good_image_is_refused(name):
    written("images/bad.png", "text")
    done = explain(f"{name}:brightest", "--skip-bad", images=("images/bad.png",))
    assert done.exit_code == Code.INPUT
    assert not Path("found").exists()


TURNS_BAD = {
    "the model fails": ("fails", Code.MODEL, "images/c.png"),
    "deleted": ("deletes", Code.INPUT, "images/c.png cannot be opened"),
}


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("what", TURNS_BAD)
def test_images_that_turn_bad_during_the_run_cost_no_result_of_the_others(name, what, skip):
    model, code, said = TURNS_BAD[what]
    # By a batch of all images too: the model then fails on a batch with good ones in it.
    words = ("--target", 0, "--batch-size", 64, *(["--skip-bad"] if skip else []))
    done = explain(f"{name}:{model}", *words)
    assert done.exit_code == (Code.SKIPPED if skip else code)
    assert said in done.stderr
    assert names() == of("a", "b")
    assert summary()["skipped"][0]["image"] == "images/c.png"
    assert summary()["interrupted"] is False
    if not skip:
        assert "2 of 3 images are in found; run the same command with --resume" in done.stderr


def test_skip_bad_also_skips_a_first_image_that_the_model_refuses(name):
    shutil.move("images/c.png", "images/0.png")
    done = explain(f"{name}:fails", "--skip-bad")
    assert done.exit_code == Code.SKIPPED
    assert names() == of("a", "b")


def test_a_model_that_always_fails_is_given_up(name):
    for number in range(40):
        picture(f"images/{number}.png")
    done = explain(f"{name}:always_fails", "--target", 0)
    assert done.exit_code == Code.MODEL
    assert "20 of 43 images cannot be used; the run has given up" in done.stderr
    assert len(sys.modules[name].calls) == 21
    assert not Path("found").exists()


# The demo


def test_the_demo_does_not_replace_files_of_others(tmp_path):
    for module in ("torch", "higra"):
        pytest.importorskip(module)
    mine = tmp_path / "demo" / "demo.png"
    mine.parent.mkdir()
    mine.write_text("mine")
    done = run("demo", "--out", mine.parent)
    assert done.exit_code == Code.OUTPUT
    assert "demo.png was not written by hshap" in done.stderr
    assert mine.read_text() == "mine"
    assert names(mine.parent) == ["demo.png"]


def killed(name, *words):
    """Explain in a process of its own that the model kills on the third image."""
    child = os.fork()
    if not child:
        os.environ["TEST_SIGNAL"] = "SIGKILL"
        explain(f"{name}:stopped", "--trust", *words)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def images_in(out):
    """Return the images that the record of a run lists, and check that all its files are there."""
    record = json.loads(Path(out, "summary.json").read_text())
    assert all(Path(out, file).is_file() for file in record["files"])
    return [Path(image["image"]).name for image in record["images"]]


@POSIX
def test_a_killed_run_keeps_its_finished_images_and_goes_on_with_resume(name):
    killed(name)
    assert [path.name for path in Path("found").iterdir()] == [".hshap-run"]
    done = explain(f"{name}:brightest", "--trust")
    assert done.exit_code == 5
    assert "its finished images are kept" in done.stderr
    assert "pass --resume to go on" in done.stderr
    assert images_in("found") == ["a.png", "b.png"]
    before = Path("found/a.npz").stat().st_mtime_ns
    assert (
        explain(f"{name}:stopped", "--trust", "--resume", images=("images/a.png",)).exit_code == 2
    )
    picture("images/c.png", 200)  # no longer one that kills
    done = fine(f"{name}:stopped", "--trust", "--resume")
    assert Path("found/a.npz").stat().st_mtime_ns == before
    assert images_in("found") == ["a.png", "b.png", "c.png"]
    assert not Path("found/.hshap-run").exists()
    found = {path.stem: hshap.Explanation.load(path).score for path in Path("found").glob("*.npz")}
    assert found == pytest.approx({"a": 100 / 255, "b": 120 / 255, "c": 200 / 255})


@POSIX
def test_a_resumed_run_that_is_killed_keeps_the_images_of_both(name):
    Path("images/b.png").rename("b.png")
    Path("images/c.png").rename("c.png")
    fine(f"{name}:stopped", "--trust")
    Path("b.png").rename("images/b.png")
    Path("c.png").rename("images/c.png")
    killed(name, "--resume")
    assert images_in("found") == ["a.png"]
    picture("images/c.png", 200)
    done = fine(f"{name}:stopped", "--trust", "--resume")
    assert "its finished images are kept" in done.stderr
    assert images_in("found") == ["a.png", "b.png", "c.png"]


@POSIX
def test_results_that_were_to_replace_others_are_set_aside_if_the_run_is_killed(name):
    fine(f"{name}:brightest", "--trust")
    before = {path.name: path.read_bytes() for path in Path("found").glob("*.npz")}
    killed(name, "--force")
    done = fine(f"{name}:brightest", "--trust", "--resume")
    aside = next(Path("found").glob("results-*"))
    assert str(aside) in done.stderr
    assert images_in(aside) == ["a.png", "b.png"]
    assert {path.name: path.read_bytes() for path in Path("found").glob("*.npz")} == before


def journalled(out="found"):
    """Return the images that are finished by now, in the record and in the journal of a run."""
    journal, found = Path(out, ".hshap-run/journal"), set[str]()
    if Path(out, "summary.json").is_file():
        found |= set(images_in(out))
    for line in journal.read_text().splitlines()[1:] if journal.is_file() else ():
        with suppress(ValueError):  # the last line may be cut short
            found.add(Path(json.loads(line)["image"]["image"]).name)
    return found


@POSIX
def test_a_run_killed_at_random_points_loses_nothing(name):
    for number in range(6):
        picture(f"images/{number}.png", 100 + 20 * number)
    fine(f"{name}:brightest", "--trust", images=("images/a.png",), out="first")  # imports
    begun = time.monotonic()
    fine(f"{name}:brightest", "--trust", out="whole")
    undisturbed = time.monotonic() - begun
    rng, kills, finished = random.Random(18), 0, set[str]()
    while len(finished) < 9 or (Path("found") / ".hshap-run").exists():
        child = os.fork()
        if not child:
            explain(f"{name}:brightest", "--trust", "--resume")
            os._exit(0)
        time.sleep(rng.uniform(0.03, 0.25) * undisturbed)
        os.kill(child, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        kills += ended == -signal.SIGKILL
        now = journalled()
        assert finished <= now  # no finished image is lost
        finished = now
        if kills > 60:
            fine(f"{name}:brightest", "--trust", "--resume")
            finished = journalled()
    fine(f"{name}:brightest", "--trust", "--resume")
    assert kills > 2
    assert images_in("found") == images_in("whole")
    assert names("found") == names("whole")
    for file in Path("whole").glob("*.npz"):
        one, other = (hshap.Explanation.load(Path(out, file.name)) for out in ("found", "whole"))
        assert one.leaves == other.leaves
        assert [g.values.tobytes() for g in one.games] == [g.values.tobytes() for g in other.games]


@POSIX
def test_a_journal_leads_to_no_other_file(name):
    killed(name)
    journal = Path("found/.hshap-run/journal")
    first, second, *_ = journal.read_text().splitlines()
    line = json.loads(second)
    line["sha256"] = {"../../images/a.png": hashlib.sha256(b"").hexdigest()}
    journal.write_text("\n".join([first, json.dumps(line), second, '{"image": {"ima']))
    explain(f"{name}:brightest", "--trust")
    assert images_in("found") == ["a.png"]
    assert Path("images/a.png").exists()


# An image's answer does not depend on its neighbours


def scenes(count):
    """Write images of one scene, each with a spot of its own."""
    scene = np.random.default_rng(0).integers(60, 200, (16, 16))
    for number in range(count):
        pixels = np.repeat(scene[..., None], 3, axis=2).astype(np.uint8)
        row, column = divmod(number, 4)
        pixels[4 * row : 4 * row + 3, 4 * column : 4 * column + 3] = 255 if number % 2 else 0
        Path("scenes").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(f"scenes/{number}.png")


def numbers_of(found):
    """Return all numbers of an explanation, to compare bit for bit."""
    values = [(game.values.tolist(), game.coefficients.tolist()) for game in found.games]
    heat = found.attribution().tolist()
    return found.grid, heat, found.evaluations, values, found.settings["baseline"]


def test_an_answer_is_the_same_alone_in_any_folder_and_by_run(name):
    scenes(10)
    model = ("-m", f"{name}:unlike_the_scene", "-t", 0)
    for out, images in (("all", ["scenes"]), ("some", [f"scenes/{n}.png" for n in (7, 3, 0, 5)])):
        assert run("explain", *images, *model, "--out", out).exit_code == 0
    assert run("run", "scenes", *model, "--out", "archive", "--model-id", "a").exit_code == 0
    archive = hshap.runs.open("archive")
    assert len(archive) == 10  # all of them are explained
    for number in range(10):
        assert run("explain", f"scenes/{number}.png", *model, "--out", f"{number}").exit_code == 0
        alone = numbers_of(hshap.Explanation.load(f"{number}/{number}.npz"))
        assert numbers_of(hshap.Explanation.load(f"all/{number}.npz")) == alone
        assert numbers_of(archive[f"{number}.png"]) == alone
        if number in (0, 3, 5, 7):
            assert numbers_of(hshap.Explanation.load(f"some/{number}.npz")) == alone
