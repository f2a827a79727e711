"""Files of strangers on the command line: which decoders they reach, what they cost, how they are
told."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")

from image_bombs import BOMBS, directory, strip, tiff
from opened import explain, opened, run

import hshap

MODEL = "import numpy as np\ndef brightest(batch):\n    return batch.max(axis=(1, 2, 3))\n"
USAGE, INPUT, OUTPUT = 2, 3, 5  # exit codes
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
PICTURES = (*PICTURES, ".ppm", ".pgm", ".pnm", ".jp2")

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A user's folder: a model and an image."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"model_{abs(hash(str(tmp_path)))}"
    Path(f"{name}.py").write_text(MODEL)
    noise().save("good.png")
    yield f"{name}:brightest"
    sys.modules.pop(name, None)


@pytest.fixture
def no_waiting():
    """End a test that waits for a pipe."""

    def late(*_):
        pytest.fail("the command waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def noise(size=(16, 16), seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    return Image.fromarray(values)


def line_of(done, code=INPUT):
    """Return the one line with which a command refused."""
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    (line,) = [line for line in done.stderr.split("\n")[:-1] if "and left out (" not in line]
    assert line.isprintable()
    return line


def refused(*words, code=INPUT):
    return line_of(run(*words), code)


def unread(*words):
    return line_of(explain(*words)[0])


# Formats


def test_every_advertised_format_is_read(tmp_path):
    kinds = {".tif": "TIFF", ".jp2": "JPEG2000", ".pgm": "PPM", ".pnm": "PPM"}
    for suffix in PICTURES:
        noise().save(tmp_path / f"a{suffix}", kinds.get(suffix))
    for compression in ("raw", "packbits", "tiff_lzw", "tiff_deflate", "jpeg"):
        noise().save(tmp_path / f"{compression}.tif", compression=compression)
    noise().save(tmp_path / "tiled.jp2", tile_size=(8, 8), precinct_size=(64, 64))
    noise().save(tmp_path / "bare.jp2", no_jp2=True, quality_layers=[20, 10, 1])
    noise().save(tmp_path / "progressive.jpg", progressive=True)
    noise().save(tmp_path / "camera.jpg", "MPO", save_all=True, append_images=[noise(seed=1)])
    done = opened(tmp_path)
    assert set(done.images) == {path.name for path in tmp_path.iterdir()}
    values = np.asarray(noise())
    for name, read in done.images.items():
        is_lossy = name == "jpeg.tif" or name.endswith(("jpg", "jpeg", "jp2", "gif", "webp"))
        assert np.abs(read.seen * 255 - values).mean() < (70 if is_lossy else 1e-4), name


def test_a_frame_is_taken_by_its_number(tmp_path):
    first, *others = [Image.new("RGB", (8, 8), (value,) * 3) for value in (1, 128, 255)]
    for suffix in ("gif", "tif", "webp", "png"):
        path = tmp_path / f"a.{suffix}"
        first.save(path, save_all=True, append_images=others)
        for frame, value in enumerate((1, 128, 255)):
            read = opened(path, "--frame", frame).images[path.name]
            assert abs(read.seen.mean() * 255 - value) < 2
        assert "has 3 frames; pass --frame 0 to 2" in unread(path)
        assert "has no frame 3" in unread(path, "--frame", 3)
    # Pages of a TIFF have sizes of their own.
    path = tmp_path / "a.tif"
    noise((50, 50)).save(path, save_all=True, append_images=[noise((8, 9))])
    read = opened(path, "--frame", 1, "--max-pixels", 100).images["a.tif"]
    assert read.seen.shape == (8, 9, 3)
    line = unread(path, "--frame", 0, "--max-pixels", 100)
    assert "50 x 50 = 2500 pixels, more than 100" in line


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"


def test_postscript_named_png_never_starts_ghostscript(work, tmp_path, monkeypatch):
    plugin = pytest.importorskip("PIL.EpsImagePlugin")
    monkeypatch.setattr(plugin, "gs_binary", None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gs").write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\necho 10.0\n")
    (tmp_path / "bin" / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    Path("eps").mkdir()
    Path("eps/a.png").write_bytes(POSTSCRIPT)
    hshap.demo.example().save("found.npz")
    for words in (
        ("explain", "eps/a.png", "-m", work),
        ("explain", "eps", "-m", work),
        ("explain", "good.png", "-m", work, "--baseline", "eps/a.png"),
        ("explain", "good.png", "-m", work, "--baseline", "mean:eps"),
        ("view", "found.npz", "eps/a.png"),
    ):
        assert "a.png is not an image that can be read" in refused(*words)
    assert not Path("started").exists()
    with suppress(OSError), Image.open("eps/a.png") as image:
        image.load()
    assert Path("started").exists()  # pillow by itself does start it


OTHERS = ("BLP", "DDS", "DIB", "EPS", "ICNS", "ICO", "MSP", "PCX", "PDF", "QOI", "SGI", "TGA")


def test_formats_that_are_not_advertised_are_refused(tmp_path):
    noise().save(tmp_path / "good.png")
    modes = {"BLP": "P", "MSP": "1", "XBM": "1", "SPIDER": "F"}
    for kind in (*OTHERS, "SPIDER", "XBM", "AVIF"):
        data = io.BytesIO()
        noise((64, 64)).convert(modes.get(kind, "RGB")).save(data, kind)
        (tmp_path / f"{kind}.png").write_bytes(data.getvalue())
    (tmp_path / "RIFF.ppm").write_bytes(b"RIFF" + bytes(40))
    done = opened(tmp_path, code=7)
    assert set(done.skipped) == {path.name for path in tmp_path.iterdir()} - {"good.png"}
    for reason in done.skipped.values():
        assert "is not an image that can be read" in reason


# Bombs

CHILD = """
import json, resource, sys, warnings
warnings.filterwarnings("ignore", module="PIL")  # as `python -m hshap` does
from hshap.cli.inputs import images
from opened import explain
for path, frame in json.loads(sys.stdin.read()):
    words = () if frame is None else ("--frame", frame)
    done, _ = explain(path, "--max-pixels", 10_000_000, "--out", f"found-{path}", *words)
    print(json.dumps([path, done.exit_code, done.output]), flush=True)
modules = [name for name in sys.modules if name.startswith("PIL.") and name.endswith("Plugin")]
images._OWN.sandbox[2].close()
print(json.dumps(["modules", 0, sorted(modules)]))
print(json.dumps(["memory", 0, 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


@pytest.fixture(scope="module")
def defused(tmp_path_factory):
    """The outcome of every bomb, and the largest memory of the process that read them."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("the memory of a process is limited by /proc and RLIMIT_AS, which Linux has")
    folder = tmp_path_factory.mktemp("bombs")
    for name, (build, _, _) in BOMBS.items():
        (folder / name).write_bytes(build())
        assert (folder / name).stat().st_size < 2**20, name
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CHILD],
        input=json.dumps([(name, frame) for name, (_, frame, _) in BOMBS.items()]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {name: told for name, *told in map(json.loads, done.stdout.split("\n")[:-1])}


def test_a_bomb_is_read_or_refused_within_the_memory_of_an_image(defused):
    for name, (_, _, expected) in BOMBS.items():
        code, told = defused[name]
        if not expected:
            assert code == 0, told
            continue
        line = told.splitlines()[-1]  # behind the progress of a slow machine
        assert code == INPUT, (name, told)
        assert line.startswith(f"hshap: {name} "), told
        assert expected in line, (name, told)
    assert defused["memory"][1] < 2**30


def test_a_picture_that_takes_too_long_is_stopped(work, monkeypatch):
    slow = BOMBS["scans.jpg"][0]()
    Path("slow.jpg").write_bytes(slow)
    words = ("-m", work, "--max-pixels", 9_000_000)
    with monkeypatch.context() as patch:
        patch.setattr("hshap.cli.inputs.images.SECONDS", 0.1)
        patch.setattr("hshap.cli.inputs.images.PIXELS_A_SECOND", 10**9)
        line = refused("explain", "slow.jpg", *words)
    assert "slow.jpg is refused: reading it took over 0 s, and was stopped" in line
    assert run("explain", "good.png", *words).exit_code == 0  # by another process


def test_decoders_of_other_formats_are_not_even_loaded(defused):
    kinds = ("Bmp", "Gif", "Jpeg", "Jpeg2K", "Mpo", "Png", "Ppm", "Tiff", "WebP")
    assert set(defused["modules"][1]) <= {f"PIL.{kind}ImagePlugin" for kind in kinds}


REAL = """
import sys
from hshap.__main__ import main
model, *names = sys.argv[1:]
for name in names:
    sys.argv[1:] = ["explain", name, "-m", model, "--frame", "2"]
    try:
        main()
    except SystemExit as end:
        print(end.code)
sys.argv[1:] = ["explain", "good.png", "-m", "evil:model", "--debug"]
main()
"""


def test_the_real_command_takes_one_line_and_spells_out(work):
    # pillow logs the first and warns of the third; libtiff writes of the last by itself.
    Path("samples.tif").write_bytes(tiff([*directory(8, 8, 1)[:-1], (277, 3, 1, 99)]))
    Path("pixels.tif").write_bytes(BOMBS["pixels.tif"][0]())
    Path("late.gif").write_bytes(BOMBS["late-frame.gif"][0]())
    Path("lzw.tif").write_bytes(tiff(*[directory(9, 9, 5, *strip(9, 512))] * 3, data=b"\xff" * 64))
    names = ["samples.tif", "pixels.tif", "late.gif", "lzw.tif"]
    text = f"import warnings\nwarnings.warn({NAME!r})\nraise ValueError({NAME!r})\n"
    Path("evil.py").write_text(text)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", REAL, work, *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout.split() == ["3"] * 4
    lines = done.stderr.splitlines()
    assert [line.split()[1] for line in lines[:4]] == names
    # Of a model of its own, the warning and the traceback.
    assert any(line.startswith(r"hshap: UserWarning: a\x1b[2J") for line in lines[4:])
    assert "Traceback" in done.stderr
    assert not set(done.stderr) & CONTROLS


def test_threads_read_pictures_side_by_side(tmp_path):
    from hshap.cli.inputs.formats import Format  # the command reads in one thread
    from hshap.cli.inputs.images import Reader, read

    paths = [tmp_path / name for name in ("a.tif", "a.webp", "a.png", "a.gif")]
    for path in paths:
        noise((60, 60)).save(path)
    before = Image.MAX_IMAGE_PIXELS
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda path: read(path, Reader(Format())), paths * 5)
        assert [picture.pixels.shape for picture in found] == [(3, 60, 60)] * 20
    assert before == Image.MAX_IMAGE_PIXELS


# Files that are none


def make_pipe(name):
    os.mkfifo(name)


def make_socket(name):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(name)


def make_link_to(target):
    return lambda name: Path(name).symlink_to(target)


def make_linked_pipe(name):
    os.mkfifo(f"{name}.pipe")
    Path(name).symlink_to(f"{name}.pipe")


NO_FILES = {
    "pipe": (make_pipe, "is a named pipe"),
    "socket": (make_socket, "is a socket"),
    "linked pipe": (make_linked_pipe, "is a named pipe"),
    "endless device": (make_link_to("/dev/zero"), "is a device"),
    "terminal": (make_link_to("/dev/tty"), "is a device"),
    "file of the kernel": (make_link_to("/proc/kmsg"), ""),
    "file of a process": (make_link_to("/proc/self/status"), ""),
    "loop": (lambda name: Path(name).symlink_to(name), "cannot be opened (Too many levels"),
    "broken link": (make_link_to("nowhere"), "cannot be opened (No such file"),
}


@pytest.mark.parametrize("what", NO_FILES)
def test_pipes_devices_and_loops_are_refused_without_waiting(work, no_waiting, what):
    make, said = NO_FILES[what]
    for name in ("a.png", "a.npz", "a.npy", "a.toml", "a.txt", "a.dcm", "a.nii"):
        make(name)
    Path("folder").mkdir()
    os.chdir("folder")
    make("a.png")
    os.chdir("..")
    good = ("explain", "good.png", "-m", work)
    calls = [("explain", "a.png", "-m", work), ("explain", "folder", "-m", work)]
    if what in {"pipe", "endless device"}:
        hshap.demo.example().save("found.npz")
        calls += [
            ("explain", "a.dcm", "-m", work),
            ("explain", "a.nii", "-m", work),
            (*good, "--baseline", "a.png"),
            (*good, "--baseline", "mean:folder"),
            (*good, "--baseline", "a.npy"),
            (*good, "--config", "a.toml"),
            (*good, "--classes", "a.txt"),
            ("view", "a.npz"),
            ("view", "found.npz", "a.png"),
            ("export", "a.npz", "--format", "csv"),
            ("view", "found.npz", "a.npz"),
        ]
    for words in calls:
        assert said in refused(*words), words


def test_a_pipe_in_a_file_s_place_is_refused(work, no_waiting, monkeypatch):
    state, stat = Path("good.png").stat(), Path.stat
    os.mkfifo("a.png")

    def before(path, **options):
        return state if path.name == "a.png" else stat(path, **options)

    monkeypatch.setattr(Path, "stat", before)
    assert "a.png is a named pipe" in refused("explain", "a.png", "-m", work)


def test_links_and_folders_are_told_apart(work, monkeypatch):
    Path("link.png").symlink_to("good.png")
    assert run("explain", "link.png", "-m", work, "--out", "found").exit_code == 0
    Path("folder.png").mkdir()
    assert "folder.png holds no images" in refused("explain", "folder.png", "-m", work)
    words = ("explain", "good.png", "-m", work, "--baseline", "folder.png")
    assert "folder.png is a folder" in refused(*words)
    listed = Path.iterdir

    def denied(path):
        if path.name == "folder.png":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", denied)
    line = refused("explain", "folder.png", "-m", work)
    assert "folder.png cannot be listed (Permission denied)" in line


def npy(kind, shape, data=b""):
    text = str({"descr": kind, "fortran_order": False, "shape": "?"}).replace("'?'", shape)
    text = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


ARRAYS = [  # bytes of a baseline, and what is told of them
    (npy("<f4", "(3, 1000000, 1000000)"), "does not hold the (3, 1000000, 1000000)"),
    (npy("<f4", "(3, 16, 16)", bytes(99)), "does not hold"),
    (npy("|O", "(3, 16, 16)", b"cos\nsystem\n"), "holds object of shape"),
    (npy("<f4", "(3, -1, -1)"), "holds float32 of shape (3, -1, -1)"),
    (npy("<f4", "(3, 0, 10**30)"), "not an array that can be read"),
    (npy("<f4", "__import__('os').system('touch pwned')"), "not an array that can be read"),
    (b"PK\3\4" + bytes(50), "not an array that can be read"),
    (b"", "not an array that can be read"),
]
TEXTS = ("size = " + "[" * 100_000, "mean = " + "9" * 10_000, "white = " + "9" * 400, "size = {")


def test_arrays_texts_and_names_are_checked_first(work):
    good = ("explain", "good.png", "-m", work)
    for data, said in ARRAYS:
        Path("a.npy").write_bytes(data)
        assert said in refused(*good, "--baseline", "a.npy")
    assert not Path("pwned").exists()
    for text in TEXTS:
        Path("a.toml").write_text(text)
        done = run(*good, "--config", "a.toml")
        assert done.exit_code in (INPUT, USAGE)
        assert done.stderr.count("\n") == 1
        assert "unexpected" not in done.stderr
        assert len(done.stderr) < 500
    with Path("a.png").open("wb") as file:
        file.truncate(2**40)
    for name, said in (
        ("a.png", "a.png has 1099511627776 bytes, more than"),
        ("x" * 300 + ".png", "cannot be opened (File name too long)"),
        (os.fsdecode(b"not\xfftext.png"), r"not\xfftext.png cannot be opened"),
        ("a\nhshap: done.png", r"a\nhshap: done.png cannot be opened"),
    ):
        assert said in refused("explain", name, "-m", work)
    line = refused(*good, "--resize", "--size", "60000x60000")
    assert "3600000000 pixels, more than 100000000" in line


def test_arrays_of_both_orders_are_read(work):
    values = np.random.default_rng(0).random((3, 16, 16))
    kept = []
    for name, made in (("c", values), ("f", np.asfortranarray(values))):
        np.save("a.npy", made)
        words = ("explain", "good.png", "-m", work, "--baseline", "a.npy", "--out", name)
        assert run(*words).exit_code == 0
        kept.append(hshap.Explanation.load(f"{name}/good.npz").baseline_score)
    assert kept[0] == kept[1] == pytest.approx(values.max())


# Names on the terminal

NAME = "a\x1b[2J\x9b31m\x07\x7f\u202e\u2066\u200b\u2028\nhshap: b\r"
CONTROLS = set("\x1b\x9b\x07\x7f\u202e\u2066\u200b\u2028\r")
LETTERS = "\x1b\n\x7f\x9b\u202e\u2069\u200b\ufeff\u2029\U000e0041"


def test_control_characters_are_spelled_out(work):
    shown = {letter: repr(letter)[1:-1] for letter in LETTERS}
    shown |= {"\udcff": r"\xff", "é中 \\[b]": "é中 \\[b]"}
    for letter, text in shown.items():
        assert f"a{text}b.png cannot be opened" in refused("explain", f"a{letter}b.png", "-m", work)


def told(*words, code=0):
    done = run(*words)
    assert done.exit_code == code, done.output
    assert not set(done.output) & CONTROLS, words
    assert not any(line.startswith("hshap: b") for line in done.output.splitlines())
    return done


def test_names_cannot_write_to_the_terminal(work):
    noise().save(f"{NAME}.png")
    good = ("explain", f"{NAME}.png", "-m", work, "--classes")
    Path("names.txt").write_text("x\x1b[1m\x9b\u202e", encoding="utf-8")
    assert r"a\x1b[2J" in told(*good, "names.txt", "--out", f"{NAME}-1").stdout.replace("\n", "")
    document = json.loads(told(*good, "names.txt", "--out", "found", "--json").stdout)
    assert document["images"][0]["image"] == f"{NAME}.png"
    (saved,) = Path("found").glob("*.npz")
    copy = Path(f"{NAME}.npz")
    copy.write_bytes(saved.read_bytes())
    told("view", copy, "--out", f"{NAME}.html")
    told("export", copy, "--format", "geojson", "--out", f"{NAME}.json")
    told("view", copy, saved, "--out", f"{NAME}-both.html")
    told(*good, "names.txt", "--out", f"{NAME}-1")  # it goes on, and there is nothing to do
    told(*good, "x,y,z", "--out", "other", code=USAGE)
    told(*good, "names.txt", "-t", NAME, "--out", "other", code=USAGE)
    told("explain", f"{NAME}.jpg", "-m", work, code=INPUT)
    told("explain", "good.png", "-m", f"{NAME}.onnx", code=4)
    told("view", f"{NAME}-2.npz", code=INPUT)
    told("cost", "--partition", NAME, "--size", "8", code=USAGE)
    Path("a.toml").write_text(f"{json.dumps(NAME)} = 1", encoding="utf-8")
    told("explain", "good.png", "-m", work, "--config", "a.toml", code=USAGE)


def test_exceptions_cannot_write_to_the_terminal(work):
    Path("evil.py").write_text(f"def model(batch):\n    raise ValueError({NAME!r})\n")
    told("explain", "good.png", "-m", "evil:model", code=4)
    sys.modules.pop("evil", None)
