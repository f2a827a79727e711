"""`hshap serve`: the page of a folder that grows, on this machine alone."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.archives import Pictures, image_files
from hshap.cli.inputs.images import is_folder
from hshap.cli.options import RUN, AnyModel, MethodOptions, ModelOptions, ReadOptions
from hshap.cli.output import say, tell
from hshap.cli.runs.originals import Scale
from hshap.cli.runs.pictures import explain_images
from hshap.cli.runs.record import PAGE, SUMMARY
from hshap.cli.runs.result_folder import result_folder
from hshap.cli.runs.run import lines_of_failed
from hshap.cli.runs.signals import Stop
from hshap.errors import require
from hshap.evaluators.allocator import keep_memory
from hshap.formats.listing import LARGE, PICTURES, SCANS

if TYPE_CHECKING:
    from hshap.cli.inputs.images import Reader
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.runs.run import Watch
    from hshap.cli.serving.growing import Outcome

NEEDED_BY = "hshap serve"
HOST = "127.0.0.1"
MEGABYTE = 1_000_000


def serve(  # noqa: PLR0913, one for each option
    images: Annotated[
        Path | None, typer.Argument(help="Folder of images; dropped ones are added to it.")
    ] = None,
    *,
    model: AnyModel = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the results, as of hshap explain.")
    ] = Path("hshap-output"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the local address; 0 takes a free one.")
    ] = 8765,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    max_upload: Annotated[
        int, typer.Option(min=1, help="Largest dropped file, in megabytes.", rich_help_panel=RUN)
    ] = 100,
    method: MethodOptions,
    read: ReadOptions,
    taken: ModelOptions,
) -> None:
    """Show the page of a folder in a browser, and explain images that are added or dropped.

    The address is of this machine alone, and contains a token. Ctrl-C ends the server; finished
    results stay, and hshap explain continues with them.
    """
    uvicorn = require("uvicorn", extra="serve", needed_by=NEEDED_BY)
    require("starlette", extra="serve", needed_by=NEEDED_BY)
    from hshap.cli.serving import drops, growing, server  # noqa: PLC0415, needs starlette

    if model is None:
        if images is not None:
            message = f"{images} would be explained, but there is no model; pass --model"
            raise Refusal(Code.USAGE, message)
        if not (out / PAGE).is_file():
            message = f"--out {out} has no page to show; pass a folder that hshap explain wrote"
            raise Refusal(Code.INPUT, message)
        served = server.Served(out, title=f"hshap: {as_text(out.name)}")
    else:
        if images is None or not is_folder(images):
            message = f"IMAGES is {images}; pass a folder, to which new images can be added"
            raise Refusal(Code.USAGE, message)
        require("matplotlib", extra="plot", needed_by=NEEDED_BY)
        loaded, wanted = taken.load(model, read)
        scale = Scale(read.pixel_size, read.unit)
        rounds = Rounds(images, out, loaded, read.reader(wanted), method, scale)
        rounds.check()
        served = server.Served(
            out,
            growing.Growing(growing.Images(images, (*PICTURES, *SCANS, *LARGE)), rounds.explain),
            drops.Drops(images, max_upload * MEGABYTE),
            title=f"hshap: {as_text(loaded.name)}",
        )
    listening = _bound(port)
    number = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    address = f"http://{HOST}:{number}/?token={token}"
    app = server.application(served, port=number, token=token)
    running = uvicorn.Server(
        uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=2)
    )
    tell(f"the page is {address}")
    if open_ and not webbrowser.open(address):
        say("no browser was found; open the address in one")
    with suppress(Stop):  # the signal that ended the server may come again after it
        running.run(sockets=[listening])
    say(f"stopped; the results are in {out}")


@dataclass(frozen=True)
class Rounds:
    """Runs over a folder that grows: each explains the images that have no results yet."""

    images: Path
    out: Path
    loaded: Loaded
    reader: Reader
    method: MethodOptions
    scale: Scale = field(default_factory=Scale)

    def check(self) -> None:
        """Refuse a folder of results that cannot be written, before the server starts."""
        with result_folder(self.out, inputs=[self.images], fixed=(PAGE, SUMMARY)):
            pass

    def explain(self, watch: Watch) -> Outcome:
        """Explain the images without results, and write the page."""
        from hshap.cli.serving.growing import Outcome  # noqa: PLC0415, as above

        decode = Pictures(self.reader, self.method.templates, shows=True)
        source = image_files([self.images], decode)
        inputs = [self.images, *source.files]
        with (
            keep_memory(),
            result_folder(self.out, inputs=inputs, fixed=(PAGE, SUMMARY)) as place,
        ):
            ended = explain_images(
                source, self.loaded, self.reader, self.method, place, self.scale, watch=watch
            )
        if isinstance(ended.stop, Refusal):
            raise ended.stop
        failed = zip(ended.failed, lines_of_failed(ended.failed), strict=True)
        return Outcome(
            int(str(ended.record["done"])), {Path(row["image"]): line for row, line in failed}
        )


def _bound(port: int) -> socket.socket:
    """Return a socket of the local address."""
    made = socket.socket()
    # Else a port stays taken for a while after a server has ended.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        reason = error.strerror or error
        message = f"--port {port} cannot be used ({reason}); pass another, or 0 for a free one"
        raise Refusal(Code.USAGE, message) from error
    return made
