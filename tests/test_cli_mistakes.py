"""Mistakes on the command line: one line says what is wrong and the fix, and no file is left."""

from __future__ import annotations

import io
import pickle
import shlex
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import format_files as made
import numpy as np
import pytest
from commands import MODELS, demo_network, files_below, fine, picture, real, run, written

pytest.importorskip("matplotlib")
pytest.importorskip("nibabel")
pytest.importorskip("pyarrow")
pytest.importorskip("tifffile")
Image = pytest.importorskip("PIL.Image")

import hshap
from hshap.large import Tiles, explain_tiles

MODULE = f"""{MODELS}
later = []
def breaks_later(batch):
    later.append(len(batch))
    if len(later) > 3:
        raise OSError(28, "first line\\nsecond line")
    return batch.max(axis=(1, 2, 3))
def nothing_usable(batch):
    return batch
def slices(batch):
    assert batch.ndim == 4, batch.shape
    return (batch > 0.6).mean(axis=(1, 2, 3))
def volumes(batch):
    assert batch.ndim == 5, batch.shape
    return (batch > 0.6).mean(axis=(1, 2, 3, 4))
"""
WORDS = {
    "CELL": "explain images/cell.png -m model.onnx",
    "EXPLAIN": "explain -m model.onnx",
    "SLICES": "--model mistaken:slices -o never",
    "VOLUMES": "--model mistaken:volumes --volume -o never",
    "ARCHIVE": "run small.png -m mistaken:two -t 0 --all --baseline constant:0 --min-size 4",
    "SEG": "export one/slice.npz -f dicom-seg",
    "NIFTI": "export one/slice.npz -f nifti",
    "LARGE": "run large -m mistaken:two --channels grey --baseline constant:0 -o never",
}


def png(width, height, rows, extra=b""):
    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    text = chunk(b"zTXt", extra) if extra else b""
    data = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + text + data


def zipped(name, data, size=None):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, data)
        if size:  # a small file whose one entry says that it unpacks to this
            archive.infolist()[0].file_size = size
    return buffer.getvalue()


def bad_images():
    noise = np.random.default_rng(0).integers(0, 255, (100, 120, 3), np.uint8)
    for kind in ("png", "jpeg"):
        buffer = io.BytesIO()
        Image.fromarray(noise).save(buffer, kind)
        written(f"cut.{kind}", buffer.getvalue()[: len(buffer.getvalue()) // 2])
    written("text.png", "text")
    written("empty.png", "")
    written("bomb.png", png(40_000, 40_000, bytes(1000)))
    long_text = b"a\0\0" + zlib.compress(bytes(4 * 2**20), 9)
    written("long-text.png", png(120, 100, bytes(361 * 100), long_text))
    frames = [Image.new("L", (120, 100), value) for value in (0, 9)]
    for kind in ("gif", "tif"):
        frames[0].save(f"two.{kind}", save_all=True, append_images=frames[1:])
    Image.new("F", (120, 100)).save("floats.tif")


def bad_volumes():
    made.dicom_series(Path("series"))
    made.dicom_series(Path("gap"), skip=(4,))
    np.save("volume.npy", made.volume()[None])
    np.save("picture.npy", made.volume()[0])
    np.save("channels.npy", np.zeros((5, 4, 8, 8)))
    np.save("nan.npy", np.full((1, 4, 8, 8), np.nan))
    Path("large").mkdir()
    np.save("large/slide.npy", np.zeros((1, 64, 80), np.float32))
    written("text.nii", "no scan")
    written("notes.docx", "no scan")
    made.ome_zarr(Path("old.zarr"))
    made.ome_zarr(Path("image.zarr"))
    np.save("tiny.npy", np.zeros((8, 8)))
    np.save("plain.npy", np.zeros((32, 24)))


def results():
    explainer = hshap.Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)), hshap.Constant(0.0), hshap.Dyadic(2)
    )
    explainer.explain(np.ones((1, 4, 4)), 0).save("other.npz")
    explainer.explain(np.ones((1, 32, 24)), 0).save(written("one/slice.npz", ""))
    for out, size in (("a", 4), ("b", 8)):
        fine("explain", "small.png", "-m", "mistaken:brightest", "--min-size", size, "-o", out)
    fine(*shlex.split(WORDS["ARCHIVE"]), "-o", "RUN")
    tiled = np.zeros((1, 32, 32), np.float32)
    tiled[0, 20, 11] = 1.0
    explain_tiles(explainer, tiled, target=0, tiles=Tiles(side=16)).save("tiled.npz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with good files and one of each kind of bad ones."""
    place, patch = tmp_path_factory.mktemp("mistakes"), pytest.MonkeyPatch()
    patch.chdir(place)
    patch.syspath_prepend(str(place))
    written("mistaken.py", MODULE)
    written("model.onnx", demo_network())
    for name in ("cell", "blot"):
        picture(f"images/{name}.png", size=(100, 120))
    picture("mean.png", size=(100, 120))
    picture("small.png")
    for name in ("nothing", "full"):
        written(f"{name}/notes.txt", "mine")
    (place / "none").mkdir()
    written("m.pt", pickle.dumps(print))
    written("m.pth", zipped("a/data.pkl", pickle.dumps(print)))
    written("text.onnx", "text")
    written("w.safetensors", "")
    written("bomb.npz", zipped("header.npy", b"", 9 * 2**30))
    for name, text in {
        "key": b"sise = 3",
        "std": b"std = 0",
        "words": b"x",
        "ff": b"\xff=",
    }.items():
        written(f"{name}.toml", text)
    bad_images()
    bad_volumes()
    results()
    yield place
    patch.undo()
    sys.modules.pop("mistaken", None)


MISTAKES = [
    # words that are missing or unknown
    (
        "explain",
        2,
        "IMAGES is missing (Images, folders, a list, a tar file",
    ),
    ("explain x.png", 2, "--model is missing (ONNX file"),
    ("exam series", 2, "--model is missing"),
    ("export x.npz", 2, "--format is missing (One of coco, geojson"),
    ("CELL --labels a,b", 2, "No such option: --labels. Did you mean --classes?"),
    ("--nope", 2, "No such option: --nope; see "),
    ("nope", 2, "No such command 'nope'; see "),
    ("CELL --nope", 2, "--nope"),
    # images
    ("EXPLAIN nowhere.png", 3, "nowhere.png cannot be opened (No such file"),
    ("EXPLAIN text.png", 3, "text.png is not an image"),
    ("EXPLAIN empty.png", 3, "empty.png is empty; get a whole copy"),
    ("EXPLAIN cut.png", 3, "damaged or cut short"),
    ("EXPLAIN cut.jpeg", 3, "damaged or cut short"),
    ("EXPLAIN nothing", 3, "nothing holds no images"),
    ("EXPLAIN small.png", 4, "16 x 16 (height x width), but the model takes 100"),
    ("explain small.png -m hshap.demo:load()", 4, "if it takes another size, pass --size"),
    ("EXPLAIN bomb.png", 3, "1600000000 pixels, more than 100000000; if you trust it, pass --max-"),
    ("EXPLAIN long-text.png", 3, "long-text.png is damaged"),
    ("CELL --max-pixels 11999", 3, "more than 11999"),
    ("EXPLAIN two.gif", 3, "two.gif has 2 frames; pass --frame 0 to 1"),
    ("EXPLAIN two.tif --frame 2", 3, "has no frame 2: it has 2 frames; pass --frame 0 to 1"),
    ("EXPLAIN floats.tif", 3, "pass --white"),
    ("CELL --white 100", 3, "beyond 0 to 100"),
    ("explain image.zarr -m mistaken:slices", 3, "is an image in OME-Zarr; pass it to hshap tiles"),
    # models
    ("CELL --size 50", 4, "takes 100 x 120, but"),
    ("CELL --channels grey", 4, "3 channels"),
    ("CELL --layout nhwc", 4, "--layout nchw"),
    (
        "explain small.png -m m.pt",
        4,
        "m.pt is TorchScript, a pickle or of unknown type: loading",
    ),
    ("explain small.png -m m.pth", 4, "can run code; pass --trust"),
    ("explain small.png -m w.safetensors", 4, "holds weights"),
    ("explain small.png -m nowhere.onnx", 4, "nowhere.onnx does not exist"),
    ("explain small.png -m text.onnx", 4, "text.onnx is not an ONNX"),
    ("explain small.png -m no_such_module:x", 4, "cannot be imported"),
    ("explain small.png -m math:x", 4, "module math has no x"),
    ("explain small.png -m hshap.demo:load", 4, "--model 'hshap.demo:load()'"),
    ("explain small.png -m torch:nn.ReLU", 4, "--model 'torch:nn.ReLU()'"),
    ("explain small.png -m math:pi", 4, "which cannot be called"),
    ("explain small.png -m mistaken:breaks_later -o x/y/z", 4, "(OSError: [Errno"),
    ("explain small.png -m mistaken:nothing_usable", 4, "shape"),
    # classes
    ("CELL --classes none,cross -t crss", 2, "--target crss is not a class; did you mean cross?"),
    ("CELL -t cross", 2, "pass a number, or --classes"),
    ("CELL -t 2", 2, "the model has 2 outputs; pass 0 to"),
    ("CELL --classes a,b,c", 2, "3 class names for 2 outputs"),
    # options
    ("CELL --background blu", 2, "--background blu is not a col"),
    ("CELL --tolerance 1 --percentile 70", 2, "exclude each other"),
    ("CELL --tolerance much", 2, "--tolerance much is not"),
    ("CELL --search best", 2, "--search best is not known; pass one"),
    ("CELL --search group --percentile 70", 2, "--percentile does not apply to --search group"),
    ("CELL --search group --tolerance 120%", 2, "--tolerance 120% is more than the whole score"),
    ("CELL --percentile 101", 2, "percentile must be"),
    ("CELL --partition hex", 2, "--partition hex is not known"),
    ("CELL --min-size 0", 2, "--min-size 0 is not"),
    ("CELL --baseline grey", 2, "--baseline grey is neither"),
    ("CELL --baseline mean:.git", 3, ".git cannot be opened"),
    ("CELL --baseline small.png", 4, "16 x 16"),
    ("CELL --config key.toml", 2, "key.toml: s"),
    ("CELL --config std.toml", 2, "std is 0"),
    ("CELL --config words.toml", 3, "is not TOML"),
    ("CELL --config ff.toml", 3, "is not text"),
    ("CELL --device cuda:7", 2, "--device cuda:7 is not one"),
    # places for results
    ("CELL --out model.onnx/x", 5, "cannot be written"),
    ("CELL --out mean.png", 5, "mean.png is a file"),
    ("CELL --out full", 5, "full has files that hshap did not write"),
    ("CELL --out images", 5, "images has the input images/cell.png"),
    ("CELL --out /proc/hshap/x", 5, "cannot be written"),
    # view, export, cost
    ("view nowhere.npz", 3, "nowhere.npz cannot be opened"),
    ("view small.png", 3, "small.png is not an hshap explanation"),
    ("view bomb.npz", 3, "more than"),
    ("view none", 3, "holds no explanations"),
    ("view tiled.npz", 2, "pass the image after it"),
    ("export tiled.npz -f png", 3, "explains a large image by tiles"),
    ("export a/small.npz --format dicom", 2, "--format dicom is not known"),
    ("export a/small.npz b/small.npz -f coco", 2, "several files explain"),
    ("export none -f coco", 3, "none holds no explanations (.npz)"),
    ("view a/small.npz b/small.npz --out no/x.html", 5, "cannot be written"),
    ("cost", 2, "pass --size"),
    ("cost images", 2, "pass --model"),
    ("cost --size 64 --batch-size 0", 2, "pass 1 or more, or auto"),
    # exports back to a scan
    ("SEG", 2, "does not tell where its scan is; pass --scan"),
    ("NIFTI --scan tiny.npy", 3, "explains an image of (32, 24) pixels"),
    ("NIFTI --scan gone.nii", 3, "--scan gone.nii does not exist"),
    ("SEG --scan plain.npy", 3, "plain.npy is no DICOM file; pass --fo"),
    ("NIFTI --scan plain.npy", 3, "which plain.npy does not tell; pass --for"),
    ("NIFTI --scan plain.npy -o left", 3, "which plain.npy does not tell"),
    ("export one/slice.npz -f ome-zarr --scan FILE -o old.zarr", 5, "inside the image old.zarr"),
    ("NIFTI --scan FILE -o old.zarr/a.nii", 5, "inside the image old."),
    ("SEG --scan FILE -o series/n.dcm", 5, "among the files"),
    # volumes
    ("exam missing.nii SLICES", 3, "missing.nii"),
    ("exam text.nii SLICES", 3, "text.nii"),
    ("exam notes.docx SLICES", 3, "is of no kind that can be read"),
    ("exam none SLICES", 3, "none"),
    ("exam gap SLICES", 3, "gap"),
    ("exam picture.npy SLICES", 3, "is no volume, but one picture; pass it to hshap"),
    ("exam channels.npy SLICES", 3, "has 5 channels; pass grey values or colours"),
    ("exam nan.npy SLICES", 3, "has values that are no numbers"),
    ("exam series SLICES --window 3", 2, "--window 3 is not a range; pass"),
    ("exam series SLICES --window 5,5", 2, "--window 5,5 is not a range"),
    ("exam series SLICES --window 0,inf", 2, "is not a range"),
    ("exam series SLICES --window a,b", 2, "is not a list of numbers"),
    ("exam series SLICES --window 0,1 --white 9", 2, "--window and --white exclude each other"),
    ("exam series SLICES --target 7", 2, "--target 7 is out of range"),
    ("exam series --model mistaken:volumes -o never", 4, "if it takes volumes, --volume"),
    ("exam series SLICES --volume", 4, "single slices, leave out --volume"),
    ("exam series VOLUMES --size 8x8", 2, "are for models of slices"),
    ("exam series VOLUMES --baseline mean:series", 2, "is a picture, but the"),
    ("exam series --model mistaken:none", 4, "none"),
    ("exam series SLICES --out series", 5, "series is an input"),
    # runs
    ("ARCHIVE -o never -t 7", 2, "--target 7 is out of range"),
    ("ARCHIVE -o images", 5, "is no run folder"),
    ("ARCHIVE -o never --address ray://x", 2, "--executor ray"),
    ("ARCHIVE -o never --executor slurm --jobs never/jobs", 2, "outside of --out"),
    ("ARCHIVE -o never --page notes.docx", 5, "--page"),
    ("ARCHIVE -o never --page never/page.html", 2, "--page"),
    ("ARCHIVE -o never --page images", 5, "--page"),
    ("LARGE -t 0 --overlap 4", 2, "--overlap is for large images; pass --tiles"),
    ("LARGE --tiles 16", 2, "--target is missing"),
    ("LARGE -t top --tiles 16", 2, "--target top is known only after all tiles are scored"),
    ("LARGE -t 0 --tiles 16 --size 64x64", 2, "--size 64x64 is for whole images"),
    ("export RUN -f coco", 2, "only runs write to"),
    ("export RUN -f coco -o RUN/coco.json", 2, "only runs write to"),
    ("view RUN -o RUN/page.html", 2, "which it is made from"),
    ("view RUN --select 'select score from explanations'", 2, "no column image"),
    ("view RUN --select 'drop table x'", 2, "cannot be run"),
    ("view RUN --select 'select image from explanations limit 0'", 3, "no images"),
    ("view RUN a/summary.json", 2, "is no folder"),
    ("view a --select 'select 1'", 2, "is for run folders"),
    ("query RUN 'select colour from explanations'", 2, "colour"),
    ("query images 'select 1'", 3, "images"),
    ("verify RUN images", 2, "--model"),
    # the server
    ("serve --out none", 3, "--out none has no page"),
    ("serve images", 2, "pass --model"),
    ("serve gone --model mistaken:two", 2, "IMAGES is gone"),
    ("serve --model mistaken:two", 2, "IMAGES is None"),
    ("serve images --model no.onnx", 4, "no.onnx does not exist"),
    ("serve images --model mistaken:two --out images", 5, "input"),
]


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES, ids=[one[0] for one in MISTAKES])
def test_a_mistake_takes_one_line_and_leaves_nothing(folder, words, code, said):
    if "torch" in words or "demo" in words:
        pytest.importorskip("torch")
    for name, meaning in {**WORDS, "FILE": str(next(folder.glob("series/*")))}.items():
        words = f" {words} ".replace(f" {name} ", f" {meaning} ").strip()
    before = files_below()
    done = run(*shlex.split(words))
    lines = [line for line in done.stderr.splitlines() if "were shown from black" not in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("hshap: ")
    assert said in lines[0]
    assert (done.exit_code, done.stdout) == (code, "")
    assert not made.shows_patient(done.output)
    assert files_below() == before


def test_the_real_command_refuses_in_one_line(tmp_path):
    done = real("explain", tmp_path / "nowhere.png", "--model", "model.onnx")
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (3, 1, "")


def test_debug_shows_the_traceback():
    for words in (("--debug", "explain"), ("explain", "--debug")):
        done = run(*words, "nowhere.png", "-m", "model.onnx")
        assert isinstance(done.exception, hshap.HshapError)


def test_no_typer_is_told_in_one_line(tmp_path):
    code = "import sys; sys.modules['typer'] = None; from hshap.__main__ import main; main()"
    done = subprocess.run(  # noqa: S603, our own program
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 6
    assert "the hshap command needs typer: pip install" in done.stderr
    assert done.stderr.count("\n") == 1
