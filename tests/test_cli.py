"""`hshap explain`: images and a model become explanations, pictures and a page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import (
    MODELS,
    demo_network,
    fine,
    folder_of_user,
    names,
    picture,
    real,
    run,
    written,
)

pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")

import hshap
from hshap.cli.app import COMMANDS, load_command
from hshap.demo import bundled

ROOT = Path(__file__).parents[1]
DEMO = ("-m", "model.onnx")
MODULE = f"""{MODELS}
def remembers(batch):
    calls.append(np.array(batch))
    return batch.mean(axis=(2, 3))
def speaks(batch):
    print("the model speaks")
    return brightest(batch)
def make():
    return brightest
"""


@pytest.fixture
def name(tmp_path, monkeypatch):
    """The name of a module of models, in a folder with a demo network and images of its size."""
    with folder_of_user(tmp_path, monkeypatch, MODULE) as name:
        samples = bundled()
        written("model.onnx", demo_network())
        Path("images").mkdir()
        for number, file in ((0, "blot"), (3, "cell")):
            Image.fromarray(np.moveaxis(samples["images"][number], 0, -1)).save(
                f"images/{file}.png"
            )
        mean = np.rint(np.moveaxis(samples["mean"], 0, -1) * 255).astype(np.uint8)
        Image.fromarray(mean).save("mean.png")
        picture("small.png")
        yield name


def load(file="small", out="hshap-output"):
    return hshap.Explanation.load(f"{out}/{file}.npz")


def document(done):
    return json.loads(done.stdout[done.stdout.index("{") :])


def seen(name):
    """Return the first batch that the model of a module was given."""
    return sys.modules[name].calls[0]


# Results


@pytest.mark.usefixtures("name")
def test_images_become_findings_pictures_and_page():
    done = fine(
        *("explain", "images", *DEMO, "--target", 1, "--baseline", "mean.png"),
        *("--min-size", 8, "--out", "found"),
    )
    assert "found/index.html" in done.stdout
    files = ["blot.npz", "blot.png", "cell.npz", "cell.png", "index.html", "summary.json"]
    assert names() == files
    found = load("cell", "found")
    assert found.target == 1
    assert found.settings["source"]["image"] == "cell.png"
    page = Path("found/index.html").read_text()
    assert "cell.png" in page
    assert "blot.png" in page
    truth = bundled()["truths"][3]
    hit = [truth[tuple(map(slice, box.start, box.stop))].any() for box in found.boxes()]
    assert np.mean(hit) > 0.8


@pytest.mark.usefixtures("name")
def test_defaults_find_every_cross_alone():
    pytest.importorskip("higra")
    samples = bundled()
    for number, image in enumerate(samples["images"]):
        Image.fromarray(np.moveaxis(image, 0, -1)).save(f"images/{number}.png")
    fine("explain", *(f"images/{n}.png" for n in range(4)), *DEMO, "-t", 1)
    for number, (truth, crosses) in enumerate(
        zip(samples["truths"], samples["crosses"], strict=True)
    ):
        found = load(number)
        assert hshap.metrics.f1(found.saliency(), truth) > 0.99
        assert len(found.boxes()) == crosses


def test_json_is_one_document_alone(name):
    done = fine("explain", "small.png", "--model", f"{name}:speaks", "--json")
    told = json.loads(done.stdout)
    assert "the model speaks" in done.stderr
    (image,) = told["images"]
    (one,) = image["explanations"]
    assert one["score"] == 1
    assert one["complete"]
    assert told["page"] == "index.html"
    assert told["evaluations"] >= one["evaluations"] - 1
    assert json.loads(Path("hshap-output/summary.json").read_text())["images"] == told["images"]


@pytest.mark.parametrize(
    ("words", "search", "tolerance"),
    [
        (("--tolerance", "5%"), "DepthFirst", 0.05),
        (("--search", "group", "--tolerance", "auto"), "GroupTesting", 0.2),
        (("--search", "group", "--tolerance", "5%"), "GroupTesting", 0.05),
        (("--search", "group", "--tolerance", "0.3"), "GroupTesting", 0.3),
    ],
)
def test_a_search_is_as_told(name, words, search, tolerance):
    given = ("--baseline", "constant:0", "--partition", "bisection", "--min-size", 4)
    fine("explain", "small.png", "-m", f"{name}:brightest", *given, *words)
    found = load()
    assert found.settings["search"]["type"] == search
    assert found.settings["search"]["tolerance"] == pytest.approx(tolerance)
    if search == "GroupTesting":
        assert found.certificate.questions > 2
    else:
        assert found.at(tolerance=0.9).leaves in ((), found.leaves)


@pytest.mark.usefixtures("name")
def test_classes_by_name_share_a_view():
    written("model.toml", 'classes = ["no cross", "a cross"]\noutput = "softmax"\n')
    words = ("explain", "images/cell.png", *DEMO)
    done = fine(
        *words, *("-t", "a cross", "-t", "0", "--baseline", "mean.png", "--min-size", 25, "--json")
    )
    (image,) = document(done)["images"]
    first, second = image["explanations"]
    assert (first["class"], first["target"], second["class"]) == ("a cross", 1, "no cross")
    assert first["explanation"] == "cell-a_cross.npz"
    assert first["score"] + second["score"] == pytest.approx(1)
    # Options win over the file beside the model.
    more = ("-t", "b", "--classes", "a,b", "--output", "raw", "--budget", 20, "--json")
    told = document(fine(*words, *more, "--out", "other"))
    (one,) = told["images"][0]["explanations"]
    assert (told["output"], one["class"]) == ("raw", "b")
    assert one["evaluations"] <= 20


def test_the_highest_class_is_the_default(name):
    Image.fromarray(np.full((16, 16, 3), (0, 0, 200), np.uint8)).save("blue.png")
    Image.fromarray(np.full((16, 16, 3), (90, 0, 0), np.uint8)).save("red.png")
    told = document(fine("explain", "blue.png", "red.png", "-m", f"{name}:remembers", "--json"))
    assert [image["explanations"][0]["target"] for image in told["images"]] == [2, 0]


def test_an_attribute_with_brackets_is_called(name):
    fine("explain", "small.png", "-m", f"{name}:make()")
    assert load().score == 1


def test_images_of_one_name_stay_apart(name):
    picture("other/small.png")
    words = ("explain", "small.png", "other", "-m", f"{name}:brightest", *("--min-size", 4))
    fine(*words)
    assert {"small.npz", "small-2.npz"} <= set(names("hshap-output"))
    fine("export", "hshap-output", "--format", "coco", "--out", "coco.json")
    images = json.loads(Path("coco.json").read_text())["images"]
    assert {Path(one["file_name"]).name for one in images} == {"small.png"}
    assert len({one["file_name"] for one in images}) == 2


def test_force_keeps_files_of_others(name):
    picture("other.png")
    words = ("-m", f"{name}:brightest", "--out", "found")
    fine("explain", "small.png", *words)
    written("found/notes.txt", "mine")
    before = Path("found/small.npz").read_bytes()
    fine("explain", "other.png", *words, "--budget", 20, code=2)
    assert Path("found/small.npz").read_bytes() == before
    fine("explain", "other.png", *words, "--force")
    assert names() == ["index.html", "notes.txt", "other.npz", "other.png", "summary.json"]


# Pixels on their way to the model


def test_pixels_have_the_order_and_scale_told(name):
    Image.fromarray(np.full((8, 8, 3), (255, 51, 0), np.uint8)).save("orange.png")
    fine(
        *("explain", "orange.png", "-m", f"{name}:remembers", "--channels", "bgr"),
        *("--range", "0,10", "--mean", "1,2,3", "--std", "2"),
    )
    assert seen(name).dtype == np.float32
    assert seen(name)[0, :, 3, 3].tolist() == pytest.approx([-0.5, 0.0, 3.5])


def test_sixteen_bits_keep_their_values(name):
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    for file in ("deep.png", "deep.tif"):
        Image.fromarray(values).save(file)
        for white in (65535, 64000):
            words = () if white == 65535 else ("--white", white)
            fine("explain", file, "-m", f"{name}:remembers", *words, "--force")
            assert (np.rint(seen(name)[0, 1] * white) == values).all()
            sys.modules[name].calls.clear()


@pytest.mark.usefixtures("name")
def test_changes_of_images_are_told_once():
    exif = Image.Exif()
    exif[0x0112] = 3
    Path("many").mkdir()
    for number in range(3):
        Image.new("RGB", (120, 100)).save(f"many/turned {number}.jpg", exif=exif)
        Image.new("RGBA", (120, 100), (9, 9, 9, 9)).save(f"many/clear {number}.png")
    done = fine("explain", "many", *DEMO, "--min-size", 50, "--background", "black")
    assert done.stderr.count("turned upright") == 1
    assert done.stderr.count("laid on black") == 1
    assert "turned 0.jpg and 2 more" in done.stderr


@pytest.mark.usefixtures("name")
def test_resized_images_have_the_model_s_size():
    picture("small.png", size=(50, 60))
    (image,) = document(
        fine("explain", "small.png", *DEMO, "--resize", "--min-size", 50, "--json")
    )["images"]
    assert (image["size"], image["resized_from"]) == ([50, 60], [50, 60])
    assert load().grid == (100, 120)


@pytest.mark.usefixtures("name")
@pytest.mark.parametrize(("last", "batch"), [(True, "n"), (False, 3), (True, 3)])
def test_layouts_and_batches_give_the_same(last, batch):
    written("other.onnx", demo_network(channels_last=last, batch=batch))
    common = ("explain", "images/cell.png", "-t", 1, "--baseline", "mean.png", "--min-size", 25)
    fine(*common, *DEMO, "--out", "a")
    fine(*common, "-m", "other.onnx", *(("--layout", "nhwc") if last else ()), "--out", "b")
    one, other = (load("cell", out) for out in "ab")
    assert one.leaves == other.leaves
    assert one.score == pytest.approx(other.score, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("constant", [0.5, 0.5, 0.5]),
        ("constant --mean 0.5,0.4,0.3", [0, 0, 0]),
        ("constant:0.2", [0.2, 0.2, 0.2]),
        ("constant:0,0.5,1", [0, 0.5, 1]),
        ("blur:1", [0, 0, 0]),
        ("mean:references", [0.4, 0.4, 0.4]),
        ("grey.npy", [0.25, 0.25, 0.25]),
    ],
)
def test_hidden_pixels_show_the_baseline(name, text, value):
    Path("references").mkdir()
    for number in (0, 204):
        Image.new("RGB", (16, 16), (number,) * 3).save(f"references/{number}.png")
    np.save("grey.npy", np.full((3, 16, 16), 0.25, np.float32))
    fine("explain", "small.png", "-m", f"{name}:remembers", "--baseline", *text.split())
    corner = np.concatenate(sys.modules[name].calls[1:])[:, :, 15, 15]
    assert any(np.allclose(row, value, atol=1e-6) for row in corner)


# Models of torch


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("name")
def test_files_of_torch_need_trust():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.AdaptiveMaxPool2d(1), torch.nn.Flatten())
    example = torch.zeros(2, 3, 16, 16)
    torch.jit.save(torch.jit.trace(module.eval(), example), "script.pt")
    torch.save(module.train(), "whole.pt")
    program = torch.export.export(module.eval(), (example,))
    torch.export.save(program, "fixed.pt2")
    common = ("--target", 1, "--baseline", "constant:0", "--min-size", 4, "--json")
    for file in ("script.pt", "fixed.pt2", "whole.pt"):
        words = ("explain", "small.png", "-m", file, *common, "--out", f"out-{file}")
        refused = fine(*words, code=4).stderr
        assert "pass --trust if you trust its author, or export the model to ONNX" in refused
        done = fine(*words, "--trust")
        (one,) = document(done)["images"][0]["explanations"]
        assert one["regions"] == [{"start": [4, 4], "stop": [8, 8], "score": 1.0}]
        assert ("switched from training to eval" in done.stderr) == (file == "whole.pt")


NETS = """
import torch
seen = set()
class Single(torch.nn.Module):
    def forward(self, batch):
        assert len(batch) == 1
        return batch.reshape(1, -1)[:, ::500].amax(dim=1, keepdim=True)
class Layouts(torch.nn.Module):
    def forward(self, batch):
        seen.add((batch.stride(1) == 1, len(batch) > 1))
        return batch.amax(dim=(2, 3))
class Views(torch.nn.Module):
    def forward(self, batch):
        return batch.view(len(batch), -1).mean(dim=1, keepdim=True)
single, layouts, views = Single().eval(), Layouts().eval(), Views().eval()
net = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.AdaptiveAvgPool2d(1)).eval()
"""


@pytest.fixture
def nets(name):
    """Modules of torch, and the images of a user."""
    pytest.importorskip("torch")
    written("nets_of_user.py", NETS)
    yield "nets_of_user"
    sys.modules.pop("nets_of_user", None)


QUADTREE = ("-t", 0, "--partition", "quadtree", "--min-size", 25)


def test_a_module_takes_one_image_at_a_time(nets):
    options = ("-m", f"{nets}:single", *QUADTREE, "--batch-size", 1)
    fine("explain", "images", *options)
    assert "by a sample of" in fine("cost", "images", *options).stdout


def test_a_run_keeps_its_memory_layout(nets):
    options = ("explain", "images", "-m", f"{nets}:layouts", *QUADTREE)
    fine(*options, "--channels-last")
    shutil.copy("mean.png", "images/new.png")
    sys.modules[nets].seen.clear()
    fine(*options, "--channels-last")
    assert {last for last, several in sys.modules[nets].seen if several} == {True}
    assert "channels_last" in fine(*options, code=2).stderr


def test_cost_times_the_layouts_that_work(nets):
    def alternatives(model):
        told = json.loads(fine("cost", "-m", f"{nets}:{model}", "--size", 20, "--json").stdout)
        assert all(other["seconds"] > 0 for other in told["alternatives"])
        return [(other["batch_size"], other["channels_last"]) for other in told["alternatives"]]

    assert alternatives("net") == [(1, False), (8, False), (32, True)]
    assert alternatives("views") == [(1, False), (8, False)]


# The command as users start it


def readme_commands():
    """Return the commands of the README's section on the command line."""
    text = (ROOT / "README.md").read_text()
    section = text.split("## From the command line")[1].split("\n## ")[0]
    block = re.findall(r"```\n(.*?)```", section, re.DOTALL)[0]
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.strip()]


@pytest.mark.usefixtures("name", "blank_pictures")
def test_the_readme_leads_from_model_to_page():
    first, *others = readme_commands()
    assert len(others) < 6
    # The test runs in what this made; that its extras exist is all that is left to see.
    assert first[:2] == ["pip", "install"]
    extras = re.fullmatch(r"\.\[(.*)\]", first[2])[1].split(",")
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)
    for words in others:
        assert words[0] == "hshap"
        if words[1] == "explain":
            done = real(*words[1:])
            assert done.returncode == 0, done.stderr
        else:
            fine(*words[1:])
    (page,) = Path("found").glob("*.html")
    assert "cell.png" in page.read_text()
    assert load("cell", "found").leaves
    assert json.loads(Path("found/cell.json").read_text())["annotations"]


def test_the_version_is_an_option():
    assert fine("--version").stdout == f"{hshap.__version__}\n"


def test_without_a_command_the_help_is_printed():
    told = fine()
    assert told.stdout == fine("-h").stdout == fine("--help").stdout
    assert told.stderr == ""


def test_the_shell_completes_commands():
    done = real(_HSHAP_COMPLETE="complete_bash", COMP_WORDS="hshap ex", COMP_CWORD="1")
    assert done.stdout.split() == ["explain", "export"]


def test_the_guide_has_every_option_and_code():
    text = (ROOT / "docs" / "command-line.md").read_text()
    commands = {name: load_command(name) for name in COMMANDS}
    options = {
        name: {max(option.opts, key=len) for option in command.params}
        for name, command in commands.items()
    }
    missing = [name for name in commands if f"`hshap {name}" not in text]
    for option in set().union(*options.values()):
        if option.startswith("--") and not re.search(rf"{option}\b", text):
            missing.append(option)
    missing += [code for code in range(9) if f"| {code} |" not in text]
    assert missing == []
    cost = text.split("## Cost")[1]
    sentence = re.search(r"It takes the options of `hshap explain` but ([^.]*)\.", cost)
    lacking = {name for name in options["explain"] - options["cost"] if name.startswith("--")}
    assert set(re.findall(r"`(--[a-z-]+)`", sentence[1])) == lacking
    assert run("exam", "--help").exit_code == 0
