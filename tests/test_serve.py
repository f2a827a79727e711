"""`hshap serve`: strangers are refused, dropped images are kept whole, new images are explained."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pytest.importorskip("starlette")
httpx = pytest.importorskip("httpx2")
Image = pytest.importorskip("PIL.Image")

from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from typer.testing import CliRunner

from hshap import DepthFirst, Dyadic
from hshap.cli.app import app
from hshap.cli.commands import serve
from hshap.cli.faults import Code
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.images import Reader
from hshap.cli.inputs.models import Loaded
from hshap.cli.runs.run import Method
from hshap.cli.serving.drops import DropRefusedError, Drops
from hshap.cli.serving.growing import Growing, Images, Outcome
from hshap.cli.serving.guard import Guard
from hshap.cli.serving.server import Served, application
from hshap.games.engine import Progress

PORT, TOKEN = 8765, "a-secret"
HOST = f"http://127.0.0.1:{PORT}"
BEARER = {"authorization": f"Bearer {TOKEN}"}
MODEL = """
def brightest(batch):
    return batch.max(axis=(1, 2, 3))
"""


def picture(path, value=100, corner=4):
    array = np.zeros((16, 16, 3), np.uint8)
    array[corner : corner + 4, 4:8] = value
    Image.fromarray(array).save(path)
    return Path(path)


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    pytest.fail("it did not come to pass")
    return None


class Looks:
    """Images of a folder whose looks at it are counted; something may happen before each."""

    def __init__(self, folder, before=lambda: None):
        self.images, self.before, self.number = Images(folder, (".png",)), before, 0

    def look(self):
        self.before()
        self.number += 1
        return self.images.look()

    def wait_for_more(self, looks=6):
        """Wait until so many more looks have begun."""
        wanted = self.number + looks
        wait_for(lambda: self.number >= wanted)


class Rounds:
    """Rounds that explain nothing: they count their calls, and may fail or wait."""

    def __init__(self, folder, error=None):
        self.folder, self.error, self.calls = folder, error, []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __call__(self, watch):
        names = sorted(path.name for path in self.folder.iterdir() if path.suffix == ".png")
        self.calls.append(names)
        watch(Progress(7, 0, 1))
        self.goes_on.wait(600)
        watch(Progress(8, 1, 0))
        if self.error:
            raise self.error
        return Outcome(len(names), {Path("bad.png"): "bad.png is cut off"})


def served_folder(tmp_path, **options):
    out, images = tmp_path / "found", tmp_path / "images"
    out.mkdir(), images.mkdir()
    (out / "index.html").write_text("<!doctype html><p>the page")
    (out / ".hshap-run").mkdir()
    (out / ".hshap-run" / "half.npz").write_text("half")
    growing = Growing(Images(images, (".png",)), Rounds(images, **options), seconds=0.02)
    return Served(out, growing, Drops(images, most_bytes=1000), title="hshap: test")


@pytest.fixture
def served(tmp_path):
    return served_folder(tmp_path)


@pytest.fixture
def client(served):
    with TestClient(application(served, port=PORT, token=TOKEN), base_url=HOST) as made:
        yield made


def test_the_printed_address_lets_a_browser_in(client):
    answer = client.get(f"/?token={TOKEN}")
    assert answer.status_code == 200
    assert str(answer.url) == f"{HOST}/"  # the token does not stay in the address
    assert "HttpOnly" in answer.history[0].headers["set-cookie"]
    assert client.get("/page/").text.endswith("the page")  # by the cookie alone
    assert client.get("/state").json()["takes_images"]


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/state", "/page/", "/serve.js", "/images"])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer no"}, {"cookie": "hshap-1=x"}])
def test_without_the_token_nothing_is_answered(client, path, headers):
    for method in ("GET", "POST", "PUT", "DELETE"):
        answer = client.request(method, path, headers=headers)
        assert answer.status_code == HTTPStatus.FORBIDDEN
        assert "token" in answer.text
        assert TOKEN not in answer.text


@pytest.mark.parametrize("kind", ["websocket", "lifespan", "http", "http3", "", "webtransport"])
def test_only_http_with_the_token_reaches_the_pages(kind):
    """Every way in is refused unless it is known; the server's own start and stop is."""
    reached, sent = [], []

    async def inside(scope, receive, send):
        reached.append(scope["type"])

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        sent.append(message)

    query = f"token={TOKEN}".encode()
    bearer = [(b"authorization", b"Bearer " + TOKEN.encode()), (b"host", HOST[7:].encode())]
    scope = {"type": kind, "path": "/state", "query_string": query, "headers": bearer}
    asked = Guard(inside, PORT, TOKEN)({**scope, "method": "GET"}, receive, send)
    if kind in {"http3", "", "webtransport"}:
        with pytest.raises(RuntimeError, match="are refused"):
            asyncio.run(asked)
    else:
        asyncio.run(asked)
    assert reached == ([kind] if kind in {"lifespan", "http"} else [])
    closed = [{"type": "websocket.close", "code": 1008, "reason": "not supported"}]
    assert sent == (closed if kind == "websocket" else [])


@pytest.mark.parametrize("path", ["/", "/state", f"/?token={TOKEN}"])
def test_websockets_are_closed_before_they_open(client, path):
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(path, headers=BEARER):
        pytest.fail("it opened")


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "[::1]:1"])
def test_another_name_of_this_machine_is_refused(client, host):
    answer = client.get("/state", headers={**BEARER, "host": host})
    assert answer.status_code == HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"http://127.0.0.1:{PORT + 1}"])
def test_a_page_of_others_cannot_drop_images(client, served, origin):
    answer = client.post("/images?name=a.png", headers={**BEARER, "origin": origin}, content=b"x")
    assert answer.status_code == HTTPStatus.FORBIDDEN
    assert not list(served.drops.folder.iterdir())


def test_every_answer_tells_browsers_to_be_careful(client):
    for path in ("/", "/state", "/page/", "/none"):
        headers = client.get(path, headers=BEARER).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/page/.hshap-run/half.npz",
        "/page/..%2fimages%2fa.png",
        "/page/%2e%2e/images/a.png",
        "/page/none",
    ],
)
def test_files_outside_and_hidden_ones_are_not_given(client, served, path):
    picture(served.drops.folder / "a.png")
    assert client.get(path, headers=BEARER).status_code == HTTPStatus.NOT_FOUND


def test_a_link_out_of_the_folder_is_not_followed(client, served, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    (served.out / "link.txt").symlink_to(tmp_path / "secret.txt")
    assert client.get("/page/link.txt", headers=BEARER).status_code == HTTPStatus.NOT_FOUND


def test_a_dropped_image_is_stored_and_explained(client, served, tmp_path):
    data = picture(tmp_path / "x.png").read_bytes()
    answer = client.post("/images", params={"name": "a cell.png"}, headers=BEARER, content=data)
    assert answer.status_code == HTTPStatus.CREATED
    stored = served.drops.folder / answer.json()["name"]
    assert stored.read_bytes() == data
    wait_for(lambda: client.get("/state", headers=BEARER).json()["done"] == 1)
    state = client.get("/state", headers=BEARER).json()
    assert state["waiting"] == []
    assert state["evaluations"] == 8
    assert state["failed"] == {"bad.png": "bad.png is cut off"}


@pytest.mark.parametrize(
    ("name", "data", "status"),
    [
        ("a.exe", b"x", HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
        ("", b"x", HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
        ("png", b"x", HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
        ("a.png", b"", HTTPStatus.BAD_REQUEST),
        ("a.png", b"x" * 1001, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    ],
)
def test_a_drop_that_is_refused_leaves_nothing(client, served, name, data, status):
    answer = client.post("/images", params={"name": name}, headers=BEARER, content=data)
    assert answer.status_code == status
    assert len(answer.text.splitlines()) == 1
    assert not list(served.drops.folder.iterdir())


@pytest.mark.parametrize(
    "name", ["../up.png", "/etc/up.png", "a\\b.png", ".hidden.png", "a\x00b.png", "..png.png"]
)
def test_a_name_never_leads_out_of_the_folder(tmp_path, name):
    folder = tmp_path / "images"
    folder.mkdir()
    stored = stored_as(folder, name, b"x")
    assert [path.name for path in folder.iterdir()] == [stored.name]
    assert stored.parent == folder
    assert not stored.name.startswith(".")


def test_a_stored_image_never_replaces_another(tmp_path):
    (tmp_path / "a.png").write_bytes(b"mine")
    assert stored_as(tmp_path, "a.png", b"new").name == "a-2.png"
    assert stored_as(tmp_path, "a.PNG", b"new").name == "a-3.png"
    assert (tmp_path / "a.png").read_bytes() == b"mine"


def test_a_full_disk_is_told(tmp_path):
    with pytest.raises(DropRefusedError, match="cannot be stored") as refused:
        stored_as(tmp_path / "missing", "a.png", b"x")
    assert refused.value.status == HTTPStatus.INSUFFICIENT_STORAGE


def stored_as(folder, name, data):
    async def chunks():
        yield data

    return asyncio.run(Drops(folder, most_bytes=1000).store(name, chunks()))


def test_without_a_model_images_are_refused(tmp_path):
    served = Served(served_folder(tmp_path).out)
    with TestClient(application(served, port=PORT, token=TOKEN), base_url=HOST) as client:
        assert client.get("/state", headers=BEARER).json()["takes_images"] is False
        answer = client.post("/images?name=a.png", headers=BEARER, content=b"x")
    assert answer.status_code == HTTPStatus.CONFLICT
    assert "--model" in answer.text


def test_too_many_waiting_images_are_refused(client, served):
    served.growing._explain.goes_on.clear()  # the first round does not end
    try:
        for number in range(101):
            picture(served.drops.folder / f"{number}.png")
        answer = client.post("/images?name=a.png", headers=BEARER, content=b"x")
        assert answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
    finally:
        served.growing._explain.goes_on.set()


def test_a_file_that_is_still_written_waits(tmp_path):
    rounds = Rounds(tmp_path)
    written = threading.Event()

    def write():
        if not written.is_set():
            with (tmp_path / "a.png").open("ab") as file:
                file.write(b"x")

    images = Looks(tmp_path, write)
    growing = Growing(images, rounds, seconds=0.02)
    growing.start()
    try:
        wait_for(lambda: growing.state.waiting == ("a.png",))
        images.wait_for_more()
        assert rounds.calls == []
        written.set()
        wait_for(lambda: growing.state.done == 1)
        assert rounds.calls == [["a.png"]]
    finally:
        growing.stop()


def test_a_round_that_fails_is_told_and_the_next_goes_on(tmp_path, capsys):
    rounds = Rounds(tmp_path, error=ValueError("the disk is on fire"))
    growing = Growing(Images(tmp_path, (".png",)), rounds, seconds=0.02)
    growing.start()
    try:
        picture(tmp_path / "a.png")
        wait_for(lambda: "on fire" in growing.state.problem)
        rounds.error = None
        picture(tmp_path / "b.png")
        wait_for(lambda: growing.state.done == 2)
        assert growing.state.problem == ""
    finally:
        growing.stop()
    assert "on fire" in capsys.readouterr().err


def test_a_changed_image_is_explained_again_and_others_are_not(tmp_path):
    rounds, images = Rounds(tmp_path), Looks(tmp_path)
    growing = Growing(images, rounds, seconds=0.02)
    picture(tmp_path / "a.png")
    growing.start()
    try:
        wait_for(lambda: growing.state.done == 1)
        images.wait_for_more()
        assert len(rounds.calls) == 1
        picture(tmp_path / "a.png", value=200, corner=1)
        os.utime(tmp_path / "a.png", ns=(1, 1))
        wait_for(lambda: len(rounds.calls) == 2)
    finally:
        growing.stop()


def test_an_image_that_is_removed_makes_a_new_page_and_the_last_one_does_not(tmp_path):
    rounds, images = Rounds(tmp_path), Looks(tmp_path)
    growing = Growing(images, rounds, seconds=0.02)
    first, second = picture(tmp_path / "a.png"), picture(tmp_path / "b.png")
    growing.start()
    try:
        wait_for(lambda: growing.state.done == 2)
        first.unlink()
        wait_for(lambda: growing.state.done == 1)
        second.unlink()
        images.wait_for_more()
        assert rounds.calls == [["a.png", "b.png"], ["b.png"]]
        assert not growing.state.problem
    finally:
        growing.stop()


@pytest.fixture
def rounds(tmp_path, monkeypatch):
    """Real rounds over a folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    loaded = Loaded(lambda batch: batch.max(axis=(1, 2, 3))[:, None], "brightest")
    method = Method("constant", Dyadic(4), DepthFirst(), None)
    return serve.Rounds(Path("images"), Path("found"), loaded, Reader(Format()), (), method)


def named_in(page):
    return re.findall(r'"name":"([^"]*)","home"', page.read_text())


def test_images_that_are_removed_leave_the_page_and_keep_their_results(rounds, tmp_path):
    out = tmp_path / "found"
    for number, name in enumerate("abc"):
        picture(tmp_path / "images" / f"{name}.png", value=200 + number)
    assert rounds.explain(lambda _: None).done == 3
    before = (out / "b.npz").read_bytes()
    removed = tmp_path / "images" / "b.png"
    data = removed.read_bytes()
    removed.unlink()
    picture(tmp_path / "images" / "d.png", value=250)
    assert rounds.explain(lambda _: None).done == 3
    assert named_in(out / "index.html") == ["a.png", "c.png", "d.png"]
    assert (out / "b.npz").read_bytes() == before
    assert (out / "b.png").exists()
    record = json.loads((out / "summary.json").read_text())
    assert [Path(one["image"]).name for one in record["removed"]] == ["b.png"]
    assert rounds.explain(lambda _: None).done == 3  # a round later, they are still there
    assert (out / "b.npz").read_bytes() == before
    removed.write_bytes(data)
    calls = []
    assert rounds.explain(calls.append).done == 4
    assert not calls  # its results are taken over again
    assert named_in(out / "index.html") == ["a.png", "b.png", "c.png", "d.png"]
    assert json.loads((out / "summary.json").read_text())["removed"] == []


def test_a_name_that_a_removed_image_has_is_not_given_to_another(rounds, tmp_path):
    out = tmp_path / "found"
    picture(tmp_path / "images" / "a.png")
    picture(tmp_path / "images" / "z.png")
    rounds.explain(lambda _: None)
    before = (out / "a.npz").read_bytes()
    (tmp_path / "images" / "a.png").unlink()
    Image.fromarray(np.full((16, 16, 3), 90, np.uint8)).save(tmp_path / "images" / "a.bmp")
    rounds.explain(lambda _: None)
    assert (out / "a.npz").read_bytes() == before
    assert (out / "a-2.npz").exists()


def test_an_image_that_changes_while_the_page_is_made_is_shown_on_grey(rounds, tmp_path, capsys):
    picture(tmp_path / "images" / "a.png")
    kept = picture(tmp_path / "images" / "b.png")

    def watch(progress):
        if progress.explanations == 2:
            kept.unlink(missing_ok=True)

    assert rounds.explain(watch).done == 2
    assert named_in(tmp_path / "found" / "index.html") == ["a.png", "b.png"]
    assert "b.png: its file is not there any more" in capsys.readouterr().err


def test_stopping_ends_a_round_that_runs(tmp_path):
    def long(watch):
        for number in range(10**5):  # over a minute, if nothing stops it
            watch(Progress(number, 0, 1))
            time.sleep(0.001)
        return Outcome(1, {})

    growing = Growing(Images(tmp_path, (".png",)), long, seconds=0.02)
    picture(tmp_path / "a.png")
    growing.start()
    wait_for(lambda: growing.state.evaluations >= 7)
    growing.stop()
    assert growing.state.done == 0  # the round was stopped when it told its progress
    assert not growing._thread.is_alive()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--out", "none"], Code.INPUT, "--out none has no page"),
        (["images"], Code.USAGE, "pass --model"),
        (["none", "--model", "m:brightest"], Code.USAGE, "IMAGES is none"),
        (["--model", "m:brightest"], Code.USAGE, "IMAGES is None"),
        (["images", "--model", "no.onnx"], Code.MODEL, "no.onnx does not exist"),
        (["images", "--model", "m:brightest", "--out", "images"], Code.OUTPUT, "input"),
    ],
)
def test_mistakes_end_in_one_line(tmp_path, monkeypatch, words, code, told):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "images").mkdir()
    picture("images/a.png")
    result = CliRunner().invoke(app, ["serve", *words])
    assert result.exit_code == code
    assert told in result.output
    assert len(result.output.splitlines()) == 1


def test_a_port_that_is_taken_is_told(tmp_path, monkeypatch):
    import socket

    monkeypatch.chdir(tmp_path)
    Path("found").mkdir()
    Path("found/index.html").write_text("page")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["serve", "--out", "found", "--port", port])
    assert result.exit_code == Code.USAGE
    assert f"--port {port} cannot be used" in result.output


@pytest.fixture
def running(tmp_path):
    """The command itself, in a process of its own, with one image in its folder."""
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "images").mkdir()
    picture(tmp_path / "images" / "a.png")
    words = ["images", "--model", "m:brightest", "--target", "0", "--out", "found", "--port", "0"]
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "hshap", "serve", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
        assert address, line + process.stderr.read()
        yield process, address[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_from_a_dropped_file_to_its_findings(running, tmp_path):
    process, address = running
    base = address.partition("/?")[0]
    with httpx.Client(base_url=base, follow_redirects=True) as client:
        assert client.get(address).status_code == 200
        wait_for(lambda: client.get("/state").json()["done"] == 1)
        first = client.get("/state").json()["page"]
        data = picture(tmp_path / "b.png", corner=10).read_bytes()
        assert client.post("/images?name=b.png", content=data).status_code == HTTPStatus.CREATED
        client.post("/images?name=broken.png", content=b"no image")
        wait_for(lambda: client.get("/state").json()["done"] == 2)
        wait_for(lambda: client.get("/state").json()["failed"])
        state = client.get("/state").json()
        assert state["page"] != first
        assert "broken.png" in state["failed"]["broken.png"]
        assert "b.png" in client.get("/page/index.html").text
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 0
    assert "the results are in found" in process.stderr.read()
    found = CliRunner().invoke(
        app, ["export", str(tmp_path / "found" / "b.npz"), "--format", "csv"]
    )
    assert found.exit_code == 0, found.output


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="no browser: install chromium")
def test_a_person_drops_an_image_in_a_browser(running, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    _, address = running
    picture(tmp_path / "my cell.png", corner=10)
    complaints = []
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        tab = browser.new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.goto(address)
        tab.wait_for_selector("text=1 image explained", timeout=300_000)
        (tmp_path / "not.txt").write_text("no image")
        tab.set_input_files("#files", [tmp_path / "my cell.png", tmp_path / "not.txt"])
        tab.wait_for_selector("text=2 images explained", timeout=300_000)
        tab.click("text=1 image could not be used")
        assert "not.txt" in tab.inner_text("#reasons")
        tab.click("text=Show new images")
        frame = tab.frame_locator("#page")
        frame.locator("text=my_cell.png").first.wait_for(timeout=300_000)
        browser.close()
    # The refused file is an answer of the server, which the browser notes.
    assert [text for text in complaints if "415" not in text] == []
