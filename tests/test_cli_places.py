"""Where commands write: one run at a time, no input is written over, no file of others is lost."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commands import (
    GIVEN,
    MODELS,
    environment,
    files_below,
    fine,
    folder_of_user,
    names,
    picture,
    refused,
    run,
    written,
)

import hshap
from hshap.cli.faults import Refusal
from hshap.cli.runs.output_files import single
from hshap.cli.runs.record import files_in
from hshap.cli.runs.result_folder import result_folder

pytestmark = [
    pytest.mark.usefixtures("blank_pictures"),
    pytest.mark.skipif(os.name != "posix", reason="signals and links of POSIX"),
]

OUTPUT = 5
MODULE = f"""{MODELS}
def waits(batch):
    pathlib.Path("waiting").write_text("")
    time.sleep(600)
def dies(batch):
    os.kill(os.getpid(), signal.SIGKILL)
def meddles(batch):
    pathlib.Path("found").mkdir(exist_ok=True)
    pathlib.Path("found/a.png").write_text("mine")
    return brightest(batch)
"""


@pytest.fixture
def name(tmp_path, monkeypatch):
    """The name of a module of models in the current folder, next to a folder of two images."""
    with folder_of_user(tmp_path, monkeypatch, MODULE) as name:
        for letter in "ab":
            picture(f"images/{letter}.png")
        yield name


def words_of(model, *words, images=("images",), out="found"):
    return ("explain", *images, "-m", model, *GIVEN, "--out", out, *words)


def explain(*given, **options):
    return run(*words_of(*given, **options))


def of(*stems):
    files = [f"{stem}{suffix}" for stem in stems for suffix in (".npz", ".png")]
    return sorted([*files, "index.html", "summary.json"])


# One at a time


def test_a_second_run_is_told_at_once(name):
    words = map(str, words_of(f"{name}:waits"))
    command = [sys.executable, "-m", "hshap", *words]
    with subprocess.Popen(command, env=environment()) as process:  # noqa: S603
        try:
            while not Path("waiting").exists():
                assert process.poll() is None
                time.sleep(0.02)
            Path("link").symlink_to("found")
            for more in ((), ("--force",)):
                line = refused(explain(f"{name}:no_such_model", *more), OUTPUT, "another run")
                assert f"(process {process.pid} on " in line
            refused(explain(f"{name}:brightest", out="link"), OUTPUT, "another run")
        finally:
            process.kill()
    assert names() == [".hshap-run"]  # nobody can clean up after SIGKILL
    fine(*words_of(f"{name}:brightest"))
    assert names() == of("a", "b")


def lost_lock(name):
    """Return the lock of a run that was killed, and the fields of its signature."""
    child = os.fork()
    if not child:
        explain(f"{name}:dies", "--trust", "--target", 0)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    owner = Path("found/.hshap-run/owner")
    signature, _, mark = owner.read_text().partition(" ")
    return owner, mark, signature.split("+")


LOST = {  # machine, start of the machine, process and its start
    "a process that has ended": lambda m, b, p, s: f"{m}+{b}+999999999+1",
    "a later process of one number": lambda m, b, p, s: f"{m}+{b}+{os.getpid()}+1",
    "another machine": lambda m, b, p, s: f"elsewhere+{b}+1+1",
    "nobody": lambda m, b, p, s: "",
}


@pytest.mark.parametrize("whose", LOST)
def test_lost_locks_block_nobody_for_ever(name, whose):
    owner, mark, fields = lost_lock(name)
    owner.write_text(f"{LOST[whose](*fields)} {mark}")
    if whose == "another machine":
        written(owner.parent / "new" / "left.npz", "")
        refused(explain(f"{name}:brightest"), OUTPUT, "found/.hshap-run")
        shutil.rmtree(owner.parent)
    fine(*words_of(f"{name}:brightest"))
    assert names() == of("a", "b")


def with_folder(out, number):
    with result_folder(out, mixed=True) as place:
        (place.path / f"{number}.npz").write_text("game_region.npy")
        place.add({}, [f"{number}.npz"])
        time.sleep(0.05)
        place.finish({"hshap": "0", "command": "demo"}, [f"{number}.npz"])


def with_file(out, number):
    with single(out, force=out.exists()) as staged:
        staged.write_text(str(number))
        time.sleep(0.05)


@pytest.mark.parametrize("state", ["new", "of a killed run", "a file", "an old file"])
def test_one_of_many_gets_the_place(name, tmp_path, state):
    """Threads, since a race of processes takes minutes to be lost once."""
    out, together, ended = tmp_path / "found", threading.Barrier(8), []
    write = with_file if "file" in state else with_folder
    if state == "of a killed run":
        owner, _, (machine, boot, *_) = lost_lock(name)
        owner.write_text(f"{machine}+{boot}+999999999+1")
    if state == "an old file":
        out.write_text("old")

    def one(number):
        together.wait()
        try:
            write(out, number)
            ended.append(number)
        except Refusal as refusal:
            assert refusal.code == OUTPUT  # noqa: PT017

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if state == "an old file":  # all may replace it: one after the other, each as a whole
        assert int(out.read_text()) in ended
    elif write is with_file:
        assert [out.read_text()] == list(map(str, ended))
    else:
        (winner,) = ended
        assert names(out) == [f"{winner}.npz", "summary.json"]
    assert not list(tmp_path.glob(".hshap*"))


# Files of others


def test_files_that_appear_meanwhile_stay(name):
    done = explain(f"{name}:meddles", "--baseline", "blur")
    refused(done, OUTPUT, "found/a.png appeared during the run")
    assert Path("found/a.png").read_text() == "mine"
    Path("found/a.png").unlink()
    fine(*words_of(f"{name}:brightest", "--baseline", "blur"))
    assert names() == of("a", "b")


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("appears", [True, False])
def test_a_file_that_appears_meanwhile_stays(tmp_path, monkeypatch, has_links, appears):
    monkeypatch.chdir(tmp_path)
    hshap.demo.example().save("a.npz")
    link = os.link

    def meanwhile(file, target):
        if appears:
            Path(target).write_text("of somebody else")
        if not has_links:
            raise OSError(errno.EPERM, "no hard links here")
        link(file, target)

    monkeypatch.setattr(os, "link", meanwhile)
    done = run("export", "a.npz", "-f", "geojson", "--out", "b")
    if appears:
        refused(done, OUTPUT, "appeared in the meantime and is not replaced")
        assert Path("b").read_text() == "of somebody else"
    else:
        assert done.exit_code == 0
        assert json.loads(Path("b").read_text())["type"] == "FeatureCollection"
    assert names(".") == ["a.npz", "b"]


def linked(path, target):
    Path(path).symlink_to(Path(target).absolute())
    return path


def hard_linked(path, target):
    Path(path).parent.mkdir(exist_ok=True)
    os.link(target, path)
    return str(Path(path).parent)


HOLDS = {
    "the image folder": lambda: (("images",), "images", ()),
    "a link to it": lambda: (("images",), linked("l", "images"), ()),
    "by way of dots": lambda: (("images",), "images/../images", ()),
    "an image": lambda: (("images/a.png",), "images", ()),
    "a hard link": lambda: (("images/a.png",), hard_linked("h/x.png", "images/a.png"), ()),
    "the target of a link": lambda: ((linked("l.png", "images/a.png"),), "images", ()),
    "the baseline": lambda: (("x",), "images", ("--baseline", "images/a.png")),
    "the folder of the mean": lambda: (("x",), "images", ("--baseline", "mean:images")),
    "the configuration": lambda: (("images",), "c", ("--config", written("c/c.toml", ""))),
    "the names of classes": lambda: (("images",), "c", ("--classes", written("c/c.txt", "one"))),
}


@pytest.mark.parametrize("what", HOLDS)
def test_an_input_is_never_written_over(name, what):
    picture("x/x.png")
    images, out, words = HOLDS[what]()
    before = files_below()
    for force in ((), ("--force",)):
        done = explain(f"{name}:brightest", *words, *force, images=images, out=out)
        refused(done, OUTPUT, "never written over; pass another --out")
        assert files_below() == before


def test_a_model_is_never_written_over(name):
    written("m/a.npz", "a model")
    refused(explain("m/a.npz", "--trust", "--force", out="m"), OUTPUT, "has the input m/a.npz")


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("export", "a.npz", "-f", "coco"), "a.npz"),
        (("export", "a.npz", "b.npz", "-f", "coco"), "b.npz"),
        (("export", "a.npz", "-f", "png"), "./../here/a.npz"),
        (("view", "a.npz", "b.npz"), "b.npz"),
        (("view", "a.npz"), "link"),
        (("view", "a.npz", "images/a.png", "--resize"), "images/a.png"),
        (("view", "a.npz", "images/a.png", "--resize"), "hard"),
    ],
)
def test_a_file_never_replaces_an_input(tmp_path, monkeypatch, words, out):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    picture("images/a.png")
    for file in ("a.npz", "b.npz"):
        hshap.demo.example().save(file)
    linked("link", "a.npz")
    os.link("images/a.png", "hard")
    before = files_below()
    done = run(*words, "--out", out, "--force")
    refused(done, OUTPUT, "never written over; pass another --out")
    assert files_below() == before


def test_a_file_follows_links_and_stays_private(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hshap.demo.example().save("a.npz")
    words = ("export", "a.npz", "-f", "geojson", "--force", "--out")
    Path("real").write_text("old")
    Path("real").chmod(0o600)
    linked("link", "real")
    fine(*words, "link")
    assert Path("link").is_symlink()
    assert "FeatureCollection" in Path("real").read_text()
    assert Path("real").stat().st_mode & 0o777 == 0o600
    os.mkfifo("pipe")
    refused(run(*words, "pipe"), OUTPUT, "is a pipe")
    fine(*words, "x" * 251 + ".png")  # the longest name there is


def test_results_are_no_inputs(name):
    for more in ((), ("--force",)):
        fine(*words_of(f"{name}:brightest", *more, out="images/found"))
        assert names("images/found") == of("a", "b")
    # As a shell expands images/*
    shown = sorted(Path("images").iterdir())
    done = fine(*words_of(f"{name}:brightest", images=shown, out="other"))
    assert "images/found: 2 pictures of an earlier run are not explained" in done.stderr
    assert names("other") == of("a", "b")
    Path("blur").mkdir()  # named like a baseline
    fine(*words_of(f"{name}:brightest", "--baseline", "blur", out="blur"))


def test_force_replaces_results_alone(name):
    fine(*words_of(f"{name}:brightest"))
    Path("found/a.png").write_text("changed by the user")
    shutil.copy("found/b.npz", "found/aa.npz")  # of hshap, but of another name: the user's
    Path("found/b.npz").unlink()
    Path("found/b.npz").mkdir()
    fine(*words_of(f"{name}:brightest", "--force"))
    assert Path("found/a.png").read_text() == "changed by the user"
    assert names() == sorted([*of("a-2", "b-2"), "a.png", "aa.npz", "b.npz"])


MINE = "hshapPart(written by hshap"
EDITS = {
    "names alone": lambda: dict.fromkeys(("photo.png", "page.html"), ""),
    "digests": lambda: {
        file: hashlib.sha256(Path("found", file).read_bytes()).hexdigest()
        for file in ("photo.png", "page.html")
    },
    "beyond the folder": lambda: {
        **{
            file: hashlib.sha256(MINE.encode()).hexdigest()
            for file in (
                *("../x.js", "index_files/../x.js", "index_files/../../x.js", "other/x.js"),
                str(Path("x.js").absolute()),
            )
        },
        "..": 1,
        "a\0b.png": "",
    },
    "not JSON at all": dict,
}


@pytest.mark.parametrize("how", EDITS)
def test_an_edited_record_removes_nothing(name, how):
    fine(*words_of(f"{name}:brightest", images=("images/a.png",)))
    picture("found/photo.png")
    mine = ["x.js", "found/x.js", "found/other/x.js", "found/page.html", "found/photo.png"]
    for file in mine[:4]:
        written(file, MINE)
    Path("found/index_files").mkdir()
    before = {file: Path(file).read_bytes() for file in mine}
    record, listed = json.loads(Path("found/summary.json").read_text()), EDITS[how]()
    record["sha256"] |= listed
    record["files"] += list(listed)
    text = "[" * 100_000 if how == "not JSON at all" else json.dumps(record)
    Path("found/summary.json").write_text(text)
    done = explain(f"{name}:brightest", "--force", images=("images/b.png",))
    assert {file: Path(file).read_bytes() for file in mine} == before
    if how == "not JSON at all":
        refused(done, OUTPUT, "was not written by hshap, or has changed since")
    else:
        assert done.exit_code == 0, done.stderr
        assert not Path("found/a.png").exists()


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_record_is_a_file(name, kind):
    """A pipe is not waited for, and a link to a record elsewhere is not followed."""
    fine(*words_of(f"{name}:brightest", out="other"))
    Path("found").mkdir()
    if kind == "pipe":
        os.mkfifo("found/summary.json")
    else:
        linked("found/summary.json", "other/summary.json")
    shutil.copy("other/a.png", "found/a.png")
    refused(explain(f"{name}:brightest", "--force"), OUTPUT, "summary.json was not written by")
    assert names() == ["a.png", "summary.json"]


def publish(out, *files):
    """Write a run with these files, as `hshap explain` writes those of a page above 32 MiB."""
    with result_folder(out, mixed=True) as place:
        for file in files:
            written(place.path / file, f'hshapPart("{file}", "written by hshap");')
        names = files_in(place.path)
        place.add({}, names)
        place.finish({"hshap": "0", "command": "explain"}, names)


def test_the_folder_of_a_large_page_goes_with_it(tmp_path):
    out = tmp_path / "found"
    mark = "index_files/hshap-page.txt"
    first = [mark, *(f"index_files/{n}/{kind}.js" for n in range(3) for kind in ("view", "thumb"))]

    def below():
        return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}

    publish(out, *first)
    written(out / "index_files" / "mine.txt", "of the user")
    publish(out, *first[:5])
    assert below() == {*first[:5], "summary.json", "index_files/mine.txt"}
    assert not (out / "index_files" / "2").exists()
    changed = written(out / "index_files" / "1" / "view.js", "hshapPart( changed by the user")
    with pytest.raises(Refusal, match=r"view\.js"):
        publish(out, *first)
    assert Path(changed).read_text() == "hshapPart( changed by the user"
    for link in ("index_files", "index_files/0"):
        other, elsewhere = tmp_path / link.replace("/", "-"), tmp_path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        (other / link).parent.mkdir(parents=True)
        (other / link).symlink_to(elsewhere)
        with pytest.raises(Refusal):
            publish(other, "index_files/0/view.js")
        assert list(elsewhere.iterdir()) == []


def test_the_demo_keeps_files_of_others(tmp_path):
    for module in ("torch", "higra"):
        pytest.importorskip(module)
    mine = tmp_path / "demo" / "demo.png"
    written(mine, "mine")
    done = run("demo", "--out", mine.parent)
    assert done.exit_code == OUTPUT
    assert "demo.png was not written by hshap" in done.stderr
    assert mine.read_text() == "mine"
    assert names(mine.parent) == ["demo.png"]
