"""Files are replaced whole or not at all; links, permissions and other kinds of files are safe."""

from __future__ import annotations

import os
import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from oracle import any_marked, marked

import hshap
from hshap._util.atomic import grant_usual_permissions, replace
from hshap.errors import ArgumentError

posix = pytest.mark.skipif(os.name != "posix", reason="needs permissions and links of POSIX")
not_root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="the superuser may write everywhere"
)


def put(text):
    return lambda file: file.write(text)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    """Run a test under a known umask."""
    before = os.umask(0o022)
    yield 0o022
    os.umask(before)


@posix
def test_a_new_file_gets_the_usual_permissions(tmp_path, umask):
    assert mode(replace(tmp_path / "x", put(b"1"))) == 0o666 & ~umask


@posix
def test_a_private_folder_gets_the_usual_permissions(tmp_path, umask):
    folder = tmp_path / "private"
    folder.mkdir(0o700)
    grant_usual_permissions(folder)
    assert mode(folder) == 0o777 & ~umask
    assert not list(folder.iterdir())


@posix
@pytest.mark.parametrize("own", [0o600, 0o640, 0o644, 0o664, 0o666, 0o755])
def test_an_existing_file_keeps_its_permissions(tmp_path, umask, own):
    path = replace(tmp_path / "x", put(b"1"))
    path.chmod(own)
    replace(path, put(b"2"))
    assert path.read_bytes() == b"2"
    assert mode(path) == own


@posix
def test_a_private_file_is_private_while_it_is_written(tmp_path, umask):
    path = replace(tmp_path / "x", put(b"1"))
    path.chmod(0o600)
    seen = []
    replace(path, lambda file: seen.extend(map(mode, tmp_path.iterdir())))
    assert seen == [0o600, 0o600]


@posix
def test_a_link_is_followed_and_stays_a_link(tmp_path):
    real, link = tmp_path / "deep" / "real", tmp_path / "link"
    real.parent.mkdir()
    real.write_bytes(b"1")
    link.symlink_to("deep/real")
    replace(link, put(b"2"))
    assert link.is_symlink()
    assert real.read_bytes() == b"2"
    assert [path.name for path in real.parent.iterdir()] == ["real"]


@posix
def test_a_link_to_a_missing_file_makes_that_file(tmp_path):
    (tmp_path / "link").symlink_to("new")
    replace(tmp_path / "link", put(b"1"))
    assert (tmp_path / "new").read_bytes() == b"1"
    assert (tmp_path / "link").is_symlink()


@posix
def test_links_in_a_circle_are_an_error_of_the_system(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        replace(tmp_path / "a", put(b"1"))
    assert (tmp_path / "a").is_symlink()


@posix
@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_refused_and_stays(tmp_path, linked):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    path = link if linked else pipe
    with pytest.raises(ArgumentError, match=rf"{path.name} is a named pipe; pass the path of a"):
        replace(path, put(b"1"))
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix
def test_a_device_is_refused():
    with pytest.raises(ArgumentError, match="/dev/null is a device; pass the path of a file"):
        replace("/dev/null", put(b"1"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)  # noqa: PTH116


@posix
def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("s")
        with pytest.raises(ArgumentError, match="s is a socket"):
            replace("s", put(b"1"))


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="is a folder; pass the path of a file"):
        replace(tmp_path, put(b"1"))


@not_root
def test_a_read_only_file_is_refused(tmp_path):
    path = replace(tmp_path / "x", put(b"1"))
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="read-only; make it writable"):
        replace(path, put(b"2"))
    assert path.read_bytes() == b"1"


def test_a_missing_folder_is_told_by_the_path_that_was_given(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        replace(tmp_path / "none" / "x.npz", put(b"1"))
    assert caught.value.filename == str(tmp_path / "none" / "x.npz")


@pytest.mark.parametrize("length", [1, 240, 254, 255])
def test_names_may_be_as_long_as_the_system_allows(tmp_path, length):
    name = "ä" * (length // 2) + "x" * (length % 2)
    assert len(name.encode()) == length
    assert replace(tmp_path / name, put(b"1")).read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_longer_name_is_an_error_of_the_system_and_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="too long"):
        replace(tmp_path / ("x" * 256), put(b"1"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("exists", [False, True])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path, error, exists):
    def fail(file):
        file.write(b"half")
        raise error

    if exists:
        (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(error):
        replace(tmp_path / "x", fail)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([b"old"] if exists else [])


@posix
def test_eight_threads_write_whole_files_with_the_usual_permissions(tmp_path, umask):
    contents = [bytes([65 + number]) * 300_000 for number in range(8)]
    start = threading.Barrier(8)
    modes = set()

    def work(number):
        start.wait()
        for turn in range(10):
            replace(tmp_path / "shared", put(contents[number]))
            assert (tmp_path / "shared").read_bytes() in contents
            own = replace(tmp_path / f"{number} {turn}", put(contents[number]))
            modes.add(mode(own))
            # A file made by somebody else meanwhile must not get other permissions.
            other = tmp_path / f"other {number} {turn}"
            other.touch()
            modes.add(mode(other))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert modes == {0o666 & ~umask}
    assert len(list(tmp_path.iterdir())) == 1 + 2 * 80


@posix
def test_a_saved_explanation_goes_where_a_link_leads_and_stays_private(tmp_path, umask):
    explainer = hshap.Explainer(any_marked, hshap.Constant(0.0), hshap.Dyadic(1))
    found = explainer.explain(marked((4, 4), [3]), target=0)
    found.save(tmp_path / "real.npz")
    (tmp_path / "real.npz").chmod(0o600)
    (tmp_path / "link.npz").symlink_to("real.npz")
    found.save(tmp_path / "link.npz")
    assert mode(tmp_path / "real.npz") == 0o600
    assert np.array_equal(
        hshap.Explanation.load(tmp_path / "link.npz").saliency(), found.saliency()
    )
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArgumentError, match="pipe is a named pipe"):
        found.save(tmp_path / "pipe")
