"""Files are replaced whole or not at all; links, permissions and other kinds of files are safe."""

from __future__ import annotations

import os
import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

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
def test_files_keep_their_permissions(tmp_path, umask):
    path = replace(tmp_path / "x", put(b"1"))
    assert mode(path) == 0o666 & ~umask  # as usual for a new file
    for own in (0o600, 0o640, 0o664, 0o666, 0o755):
        path.chmod(own)
        seen = []
        replace(path, lambda file: seen.extend(map(mode, tmp_path.iterdir())))  # noqa: B023
        assert mode(path) == own
        assert own != 0o600 or seen == [0o600, 0o600]  # private also while it is written
    folder = tmp_path / "private"
    folder.mkdir(0o700)
    grant_usual_permissions(folder)
    assert mode(folder) == 0o777 & ~umask
    assert not list(folder.iterdir())


@posix
def test_a_link_is_followed_and_stays_a_link(tmp_path):
    real, link = tmp_path / "deep" / "real", tmp_path / "link"
    real.parent.mkdir()
    link.symlink_to("deep/real")
    for text in (b"1", b"2"):  # also one to a file that is not there yet
        replace(link, put(text))
        assert link.is_symlink()
        assert real.read_bytes() == text
        assert [path.name for path in real.parent.iterdir()] == ["real"]
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        replace(tmp_path / "a", put(b"1"))
    assert (tmp_path / "a").is_symlink()


@posix
def test_what_is_no_file_is_refused_and_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    Path("folder").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("s")
        before = {path: path.lstat().st_mode for path in tmp_path.iterdir()}
        for path, told in {
            "pipe": "pipe is a named pipe; pass the path of a file",
            "link": "link is a named pipe; pass the path of a file",
            "/dev/null": "/dev/null is a device; pass the path of a file",
            "s": "s is a socket",
            "folder": "is a folder; pass the path of a file",
        }.items():
            with pytest.raises(ArgumentError, match=told):
                replace(path, put(b"1"))
        assert {path: path.lstat().st_mode for path in tmp_path.iterdir()} == before
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


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


def test_names_may_be_as_long_as_the_system_allows(tmp_path):
    for length in (1, 240, 254, 255):
        name = "ä" * (length // 2) + "x" * (length % 2)
        assert len(name.encode()) == length
        assert replace(tmp_path / name, put(b"1")).read_bytes() == b"1"
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()
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
def test_threads_write_whole_files(tmp_path, umask):
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
def test_a_saved_explanation_stays_private(tmp_path, umask):
    found = hshap.demo.example()
    found.save(tmp_path / "real.npz")
    (tmp_path / "real.npz").chmod(0o600)
    (tmp_path / "link.npz").symlink_to("real.npz")
    found.save(tmp_path / "link.npz")
    assert mode(tmp_path / "real.npz") == 0o600
    loaded = hshap.Explanation.load(tmp_path / "link.npz")
    assert np.array_equal(loaded.saliency(), found.saliency())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArgumentError, match="pipe is a named pipe"):
        found.save(tmp_path / "pipe")
