"""`hshap serve`: strangers are refused, dropped images are kept whole, new images are explained."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import environment, fine, folder_of_user, picture, run, written

pytest.importorskip("matplotlib")
uvicorn = pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx2")

from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

pytestmark = pytest.mark.usefixtures("blank_pictures")

WORDS = ("--target", 0, "--min-size", 8, "--baseline", "constant:0")
CREATED, BAD, FORBIDDEN, NOT_FOUND, CONFLICT, TOO_LARGE, UNSUPPORTED = (
    *(201, 400, 403, 404, 409, 413, 415),
)
MISDIRECTED, TOO_MANY = 421, 429


@contextmanager
def serving(*words):
    """Run the command with a client in place of its sockets; give the client, token included.

    Its paths are absolute: the server stays in this process when the next test changes the folder.
    """
    started, ended, outcome = queue.Queue(), threading.Event(), []
    streams = []  # pytest puts others in their place meanwhile, and these would be closed

    class Server:
        def __init__(self, config):
            self.app = config.app

        def run(self, sockets):
            streams.append((sys.stdout, sys.stderr))
            started.put(self.app)
            ended.wait(600)
            for made in sockets:
                made.close()

    with pytest.MonkeyPatch.context() as patch:
        addresses = []
        patch.setattr(uvicorn, "Server", Server)
        patch.setattr("webbrowser.open", lambda address: addresses.append(address) or True)
        command = ("serve", *words, "--port", 0, "--open")
        thread = threading.Thread(target=lambda: outcome.append(run(*command)))
        thread.start()
        try:
            app = started.get(timeout=60)
            base, _, token = addresses[0].partition("/?token=")
            with TestClient(app, base_url=base) as client:
                client.headers["authorization"] = f"Bearer {token}"
                client.token = token
                yield client
        finally:
            ended.set()
            thread.join()
    assert outcome[0].exit_code == 0, outcome[0].output


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A client of a server with a page, a hidden file, and a place for images."""
    folder = tmp_path_factory.mktemp("shown")
    with pytest.MonkeyPatch.context() as patch, folder_of_user(folder, patch) as name:
        picture("images/a.png")
        limit = ("--max-upload", 1)
        given = (folder / "images", "-m", f"{name}:brightest", *WORDS, "--out", folder / "found")
        with serving(*given, *limit) as client:
            until(client, done=1)
            written("found/.hshap-old/half.npz", "half")
            written("secret.txt", "secret")
            Path("found/link.txt").symlink_to(folder / "secret.txt")
            client.folder = folder / "images"
            yield client


@pytest.fixture
def grown(tmp_path, monkeypatch):
    """A client of a server with two images, and its folder."""
    with folder_of_user(tmp_path, monkeypatch) as name:
        for file, value in (("a", 200), ("b", 255)):
            picture(f"images/{file}.png", value)
        given = (tmp_path / "images", "-m", f"{name}:brightest", "--out", tmp_path / "found")
        with serving(*given, *WORDS) as client:
            until(client, done=2)
            yield client


def wait_for(condition, seconds=300, told=lambda: ""):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    pytest.fail(f"it did not come to pass: {told()}")


def until(client, **wanted):
    """Wait until the state has these values; return it."""
    wait_for(
        lambda: wanted.items() <= client.get("/state").json().items(),
        told=lambda: client.get("/state").text,
    )
    return client.get("/state").json()


def named():
    page = Path("found/index.html").read_text()
    return re.findall(r'"name":"([^"]*)","home"', page)


def removed():
    record = json.loads(Path("found/summary.json").read_text())
    return [Path(one["image"]).name for one in record["removed"]]


# Strangers


def test_the_printed_address_lets_a_browser_in(shown):
    browser = TestClient(shown.app, base_url=shown.base_url)
    answer = browser.get(f"/?token={shown.token}")
    assert answer.status_code == 200
    assert str(answer.url) == f"{shown.base_url}/"  # the token does not stay in the address
    assert "HttpOnly" in answer.history[0].headers["set-cookie"]
    assert "a.png" in browser.get("/page/").text  # by the cookie alone
    assert browser.get("/state").json()["takes_images"]


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/state", "/page/", "/serve.js", "/images"])
def test_without_the_token_nothing_is_answered(shown, path):
    stranger = TestClient(shown.app, base_url=shown.base_url)
    for headers in ({}, {"authorization": "Bearer no"}, {"cookie": "hshap-1=x"}):
        for method in ("GET", "POST", "PUT", "DELETE"):
            answer = stranger.request(method, path, headers=headers)
            assert answer.status_code == FORBIDDEN
            assert "token" in answer.text
            assert shown.token not in answer.text


REFUSED = {
    "another name": ("GET", "/state", {"host": "evil.example"}, MISDIRECTED),
    "another name with a port": ("GET", "/state", {"host": "evil.example:8765"}, MISDIRECTED),
    "no port": ("GET", "/state", {"host": "127.0.0.1"}, MISDIRECTED),
    "another address": ("GET", "/state", {"host": "[::1]:1"}, MISDIRECTED),
    "a page of others": ("POST", "/images?name=x.png", {"origin": "http://evil"}, FORBIDDEN),
    "no origin": ("POST", "/images?name=x.png", {"origin": "null"}, FORBIDDEN),
    "another port": ("POST", "/images?name=x.png", {"origin": "http://127.0.0.1:1"}, FORBIDDEN),
    "a hidden file": ("GET", "/page/.hshap-old/half.npz", {}, NOT_FOUND),
    "dots": ("GET", "/page/..%2fimages%2fa.png", {}, NOT_FOUND),
    "more dots": ("GET", "/page/%2e%2e/images/a.png", {}, NOT_FOUND),
    "a link out of the folder": ("GET", "/page/link.txt", {}, NOT_FOUND),
    "no file": ("GET", "/page/none", {}, NOT_FOUND),
    "another kind": ("POST", "/images?name=a.exe", {}, UNSUPPORTED),
    "no name": ("POST", "/images?name=", {}, UNSUPPORTED),
    "a suffix alone": ("POST", "/images?name=png", {}, UNSUPPORTED),
}


@pytest.mark.parametrize("what", REFUSED)
def test_requests_that_are_refused_leave_nothing(shown, what):
    method, path, headers, status = REFUSED[what]
    answer = shown.request(method, path, headers=headers, content=b"x" if method == "POST" else b"")
    assert answer.status_code == status
    assert len(answer.text.splitlines()) == 1
    assert [file.name for file in shown.folder.iterdir()] == ["a.png"]


def test_images_that_are_empty_or_too_large_are_refused(shown):
    for content, status in ((b"", BAD), (b"x" * 1_000_001, TOO_LARGE)):
        answer = shown.post("/images?name=x.png", content=content)
        assert answer.status_code == status
    assert [file.name for file in shown.folder.iterdir()] == ["a.png"]


@pytest.mark.parametrize("kind", ["websocket", "lifespan", "http3", "", "webtransport"])
def test_only_http_reaches_the_pages(shown, kind):
    """Every way in is refused unless it is known; the server's own start and stop is."""
    sent = []

    async def receive():
        return {"type": f"{kind}.shutdown" if kind == "lifespan" and sent else f"{kind}.startup"}

    async def send(message):
        sent.append(message)

    headers = [(b"authorization", f"Bearer {shown.token}".encode())]
    query = f"token={shown.token}".encode()
    scope = {"type": kind, "path": "/state", "query_string": query, "headers": headers}
    if kind in {"http3", "", "webtransport"}:
        with pytest.raises(RuntimeError, match="are refused"):
            asyncio.run(shown.app(scope, receive, send))
        assert sent == []
    elif kind == "websocket":
        asyncio.run(shown.app(scope, receive, send))
        assert sent == [{"type": "websocket.close", "code": 1008, "reason": "not supported"}]
        with pytest.raises(WebSocketDisconnect), shown.websocket_connect("/state"):
            pytest.fail("it opened")


def test_browsers_are_told_to_be_careful(shown):
    for path in ("/", "/state", "/page/", "/none"):
        headers = shown.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


# Images


@pytest.mark.usefixtures("grown")
def test_a_dropped_image_is_stored_and_explained(grown):
    data = picture("x.png", column=8).read_bytes()
    first = grown.get("/state").json()["page"]
    answer = grown.post("/images", params={"name": "a cell.png"}, content=data)
    assert answer.status_code == CREATED
    assert Path("images", answer.json()["name"]).read_bytes() == data
    grown.post("/images?name=broken.png", content=b"no image")
    state = until(grown, done=3, waiting=[])
    wait_for(lambda: grown.get("/state").json()["failed"])
    assert "broken.png" in grown.get("/state").json()["failed"]["broken.png"]
    assert state["page"] != first
    assert answer.json()["name"] in grown.get("/page/index.html").text
    stem = Path(answer.json()["name"]).stem
    assert Path(f"found/{stem}.npz").is_file()


def test_names_never_replace_or_lead_elsewhere(grown):
    before = Path("images/a.png").read_bytes()
    names = ["../up.png", "/etc/up.png", "a\\b.png", ".hidden.png", "a\x00b.png", "..png.png"]
    made = [
        grown.post("/images", params={"name": name}, content=b"x").json()["name"]
        for name in (*names, "a.png", "a.PNG")
    ]
    assert made[-2:] == ["a-2.png", "a-3.png"]
    assert sorted(os.listdir("images")) == sorted(["a.png", "b.png", *made])  # noqa: PTH208
    assert not any(name.startswith(".") for name in made)
    assert Path("images/a.png").read_bytes() == before


def test_changes_of_the_folder_reach_the_page(grown):
    before = Path("found/a.npz").read_bytes()
    data = Path("images/a.png").read_bytes()
    Path("images/a.png").unlink()
    picture("images/c.png", 250)
    until(grown, done=2, waiting=[])
    wait_for(lambda: named() == ["b.png", "c.png"])
    # Results of images that are removed are kept, and taken over again.
    assert Path("found/a.npz").read_bytes() == before
    assert Path("found/a.png").exists()
    wait_for(lambda: removed() == ["a.png"])
    picture("images/a.bmp", 90)  # the name of a removed image is not given to another
    wait_for(lambda: named() == ["a.bmp", "b.png", "c.png"])
    assert Path("found/a-2.npz").exists()
    assert Path("found/a.npz").read_bytes() == before
    Path("images/a.bmp").unlink()
    written("images/a.png", data)
    wait_for(lambda: named() == ["a.png", "b.png", "c.png"])
    assert Path("found/a.npz").read_bytes() == before
    wait_for(lambda: removed() == ["a.bmp"])
    # A changed image is explained again.
    picture("images/a.png", 120, column=10)
    wait_for(lambda: Path("found/a.npz").read_bytes() != before)


def test_a_file_that_is_still_written_waits(grown):
    data, done = picture("x.png").read_bytes(), threading.Event()

    def write():
        with Path("images/z.png").open("wb") as file:
            while not done.is_set():
                file.write(b"x")
                file.flush()
                time.sleep(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(grown, waiting=["z.png"])
        time.sleep(1)
        state = grown.get("/state").json()
        assert (state["waiting"], state["failed"]) == (["z.png"], {})
    finally:
        done.set()
        writer.join()
    Path("images/z.png").write_bytes(data)
    until(grown, done=3, waiting=[])


def test_a_round_that_fails_is_told(grown):
    Path("found/index.html").write_text("mine")
    picture("images/c.png")
    wait_for(lambda: "index.html" in grown.get("/state").json()["problem"])
    Path("found/index.html").unlink()
    picture("images/d.png")
    until(grown, done=4, problem="")


def test_too_many_waiting_images_are_refused(grown):
    for number in range(102):
        picture(f"images/{number}.png", number)
    wait_for(lambda: grown.post("/images?name=x.png", content=b"x").status_code == TOO_MANY)


def test_without_a_model_images_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written("found/index.html", "<!doctype html><p>the page")
    with serving("--out", tmp_path / "found") as client:
        assert client.get("/page/").text.endswith("the page")
        assert client.get("/state").json()["takes_images"] is False
        answer = client.post("/images?name=a.png", content=b"x")
        assert answer.status_code == CONFLICT
        assert "--model" in answer.text
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        told = fine("serve", "--out", "found", "--port", port, code=2).stderr
    assert f"--port {port} cannot be used" in told


# The command itself


@pytest.fixture
def running(tmp_path, monkeypatch):
    """The command in a process of its own, with one image in its folder."""
    with folder_of_user(tmp_path, monkeypatch) as name:
        picture("images/a.png")
        words = map(
            str, ("images", "--model", f"{name}:brightest", *WORDS, "--out", "found", "--port", 0)
        )
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "hshap", "serve", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        with process:
            try:
                line = process.stdout.readline()
                address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
                assert address, line + process.stderr.read()
                yield process, address[0]
            finally:
                process.kill()


def test_from_a_dropped_file_to_its_findings(running):
    process, address = running
    base = address.partition("/?")[0]
    with httpx.Client(base_url=base, follow_redirects=True) as client:
        assert client.get(address).status_code == 200
        until(client, done=1)
        data = picture("b.png", column=10).read_bytes()
        assert client.post("/images?name=b.png", content=data).status_code == CREATED
        until(client, done=2)
        assert "b.png" in client.get("/page/index.html").text
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 0
    assert "the results are in found" in process.stderr.read()
    fine("export", "found/b.npz", "--format", "geojson")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no browser: install chromium")
def test_a_person_drops_an_image_in_a_browser(running):
    sync_api = pytest.importorskip("playwright.sync_api")
    _, address = running
    picture("my cell.png", column=10)
    written("not.txt", "no image")
    complaints = []
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        tab = browser.new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.goto(address)
        frame = tab.frame_locator("#page")  # the header of the page is the only one
        frame.locator("text=1 image explained").wait_for(timeout=300_000)
        frame.locator("#files").set_input_files(["my cell.png", "not.txt"])
        frame.locator("text=2 images explained").wait_for(timeout=300_000)
        assert tab.locator("header").is_hidden()
        tab.click("text=1 image could not be used")
        assert "not.txt" in tab.inner_text("#reasons")
        frame.locator("text=Show new images").click()
        frame.locator("text=my_cell.png").first.wait_for(timeout=300_000)
        browser.close()
    # The refused file is an answer of the server, which the browser notes.
    assert [text for text in complaints if "415" not in text] == []
