"""A process of its own for the files of strangers, with limits on memory and time.

Decoders and onnxruntime are native code: a file can make them crash, run forever or take all
memory. In a sandbox, each of these ends that process alone, and the caller gets one line. It is no
jail: the process has the rights of the user.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from hshap.errors import HshapError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Untyped

    Process = subprocess.Popen[bytes]

SECONDS_TO_START = 60.0


class ProcessEndedError(RuntimeError):
    """The process ended before it answered, or was stopped because it was late."""

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


class Sandbox:
    """A process that answers requests one after the other.

    `prepare(*arguments)` runs there first, in at most `seconds`; it returns the function that
    answers. Both go there by name, so they belong to modules. `needs` are modules that are imported
    before the clock starts. `memory` is the number of bytes that the process may take besides those
    of these modules, on Linux; None for no limit.
    """

    def __init__(
        self,
        prepare: Callable[..., Callable[[Untyped], object]],
        *arguments: object,
        needs: Sequence[str] = (),
        memory: int | None = None,
        seconds: float | None = None,
    ) -> None:
        # -P: a folder with a file numpy.py must not become a library of the new process.
        path = [place for place in sys.path if place]
        start = f"import sys; sys.path[:] = {path!r}; from {__name__} import serve; serve()"
        words, pipe = [sys.executable, "-P", "-c", start], subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603, our own program
            words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        self.close = weakref.finalize(self, _end, self._process, os.getpid())
        try:
            self.ask((tuple(needs), memory), seconds=SECONDS_TO_START)
            self.ask((prepare, arguments), seconds=seconds)
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Tell whether the process still answers."""
        return self.close.alive

    def ask(self, request: object, *, seconds: float | None = None) -> Untyped:
        """Return the answer to a request; a process that is late is ended.

        An error of the answering function is raised here: those of hshap as they are, others as a
        `RuntimeError` with their first line. A process that ended is a `ProcessEndedError`.
        """
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds or 0.0, stop)
        try:
            if seconds is not None:
                timer.start()
            _send(cast("IO[bytes]", self._process.stdin), request)
            answer = _receive(cast("IO[bytes]", self._process.stdout))
        except (OSError, EOFError, ValueError, pickle.PickleError):  # closed, or cut short
            self.close()
            said = (
                f"took over {seconds:.0f} s, and was stopped" if late.is_set() else self._reason()
            )
            raise ProcessEndedError(said) from None
        except BaseException:  # an interrupt: the next answer would belong to this request
            self.close()
            raise
        finally:
            timer.cancel()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _reason(self) -> str:
        code = self._process.returncode
        try:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        except ValueError:
            how = f"by signal {-code}"
        return f"its process ended {how}: the file makes its library crash, or memory ran out"


def serve() -> None:
    """Answer requests until the input ends: the program of the new process."""
    source, target = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print, and must not break answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    step: Callable[[Untyped], object] = _start
    with suppress(EOFError):
        while True:
            request = _receive(source)
            try:
                made = step(request)
            except Exception as error:  # noqa: BLE001, the parent tells any error
                made = error if isinstance(error, HshapError) else RuntimeError(_said(error))
            if not isinstance(made, Exception):
                if step is _start:
                    step = _prepare
                elif step is _prepare:
                    step, made = cast("Callable[[Untyped], object]", made), None
            _send(target, made)


def _start(request: tuple[Sequence[str], int | None]) -> None:
    """Import modules, and then limit memory."""
    needs, memory = request
    for module in needs:
        importlib.import_module(module)
    if memory is not None:
        _limit(memory)


def _prepare(request: tuple[Callable[..., object], Sequence[object]]) -> object:
    """Return the function that answers all further requests."""
    prepare, arguments = request
    return prepare(*arguments)


def machine_memory() -> int:
    """Return the bytes of memory of this machine; 16 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**34


def _send(target: IO[bytes], value: object) -> None:
    """Write an object, with the content of its arrays behind it, so that they are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, 5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    pickle.dump((head, [view.nbytes for view in views]), target)
    for view in views:
        target.write(view)
    target.flush()


def _receive(source: IO[bytes]) -> Untyped:
    head, sizes = pickle.load(source)  # noqa: S301, from our own process, which is no jail
    rooms = [bytearray(size) for size in sizes]
    for room in rooms:
        if cast("Untyped", source).readinto(room) < len(room):
            raise EOFError
    return pickle.loads(head, buffers=rooms)  # noqa: S301, as above


def _end(process: Process, owner: int) -> None:
    if os.getpid() != owner:  # a fork has no say in it
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # bytes that were not sent yet
            cast("IO[bytes]", pipe).close()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _limit(memory: int) -> None:
    """Limit the memory of this process where the system can, and leave no core files."""
    try:
        import resource  # noqa: PLC0415, not on Windows

        used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # macOS does not hold such a limit either
        return
    with suppress(OSError, ValueError):  # a lower limit holds already
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    with suppress(OSError):  # if memory runs out, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _said(error: Exception) -> str:
    """Return the first line of an error, in words that `out_of_memory` of hshap knows."""
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if isinstance(error, MemoryError) or "bad_alloc" in text:
        return "out of memory"
    return "".join(sign if sign.isprintable() else "?" for sign in text[:300])
