"""The contract of a store: where the results of a run are kept, and how a later call knows them.

A run has one of two forms: shards of rows that many processes write (`folder`), or a folder with a
file for each image (`hshap.cli.runs.result_files`). Everything else of a run is the same for both:
the settings that must agree, the probes of the model, the images that are done, and the errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hshap._util.processes import Owner
    from hshap._util.types import Array, Json
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.tiled import TiledExplanation
    from hshap.runs.storing.rows import Origin, Row

    Result = Explanation | TiledExplanation

TABLES = ("explanations", "negatives", "errors")
RESULTS = ("explanations", "negatives")
"""Tables of rows that a model made."""


class Given(NamedTuple):
    """A result that becomes a row; `shown` are the pixels of its image for people, if known."""

    result: Result
    origin: Origin
    shown: Array | None = None


class Stored(NamedTuple):
    """A stored explanation: its target in words, the digest of its image, and how to read it."""

    target: str
    image_sha256: str
    read: Callable[[], Result]


class Known(NamedTuple):
    """The part of a row by which a later call knows that it need not be made again."""

    table: str
    image: str
    version: int
    image_sha256: str | None
    identity: str
    kind: str = ""
    moment: float = 0.0
    rule: str = ""


class Writer(Protocol):
    """Makes rows of results and stores them, for one process."""

    def rows(self, given: Sequence[Given]) -> Iterable[Row | Exception]:
        """Return the row of each result, or its error; an `OSError` is one of the store."""
        ...

    def negative(self, row: Row, reason: str, rule: str) -> Row:
        """Return the row of an image that was not explained, from that of its result."""
        ...

    def commit(self, table: str, rows: Sequence[Row]) -> object:
        """Store rows. They are there as a whole, or there is an error and nothing is there."""
        ...


@runtime_checkable
class Store(Protocol):
    """The results of a run. Objects must pickle if several processes write."""

    @property
    def location(self) -> str:
        """Its place, to name in messages."""
        ...

    @property
    def unfinished(self) -> Path | None:
        """The folder for finished parts of large images; None if it has none."""
        ...

    def describe(self, description: Mapping[str, Json]) -> dict[str, Json]:
        """Note model and settings of the run, or refuse those of another run; return the noted."""
        ...

    def description(self) -> dict[str, Json] | None:
        """Return the model and the settings that were noted; None if there are none."""
        ...

    def has_results(self) -> bool:
        """Tell whether there are rows that a model made."""
        ...

    def writer(self) -> Writer:
        """Return a writer for this process."""
        ...

    def known(self, seen: set[str]) -> Iterator[Known]:
        """Yield the rows that are not in `seen`, which notes the places that were read."""
        ...

    def stored(self) -> Mapping[str, Sequence[Stored]]:
        """Return the stored explanations by the names of their images."""
        ...

    def claim(self, task: str, is_quiet: Callable[[Owner], bool] | None = None) -> bool:
        """Take a task for this process; False if another one has it."""
        ...

    def release(self, task: str) -> None:
        """Give a task back."""
        ...

    def at_work(self, quiet: float) -> AbstractContextManager[Callable[[Owner], bool]]:
        """Show others that this process works, and give a way to tell who has been quiet."""
        ...

    def tidy(self) -> None:
        """Remove what processes left that were killed."""
        ...

    def seal(self) -> object:
        """Note that the run has ended, with all its rows."""
        ...


@dataclass
class Content:
    """The last content of an image that a store knows, and the identities of its rows.

    Those of negative images are kept by the rule that left them out. Contents are ordered by
    `version`. Two of one version come from drivers that read a changing file at the same time: the
    larger digest wins, everywhere. `last_error` is the moment of the last error.
    """

    version: int = 0
    sha256: str | None = None
    last_error: float = 0.0
    explained: set[str] = field(default_factory=set[str])
    failed: set[str] = field(default_factory=set[str])
    negative: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def is_before(self, version: int, sha256: str | None) -> bool:
        """Tell whether a row belongs to a later content; one without a digest is of any."""
        return version > self.version or (
            version == self.version and None not in (sha256, self.sha256) and sha256 > self.sha256  # pyright: ignore[reportOperatorIssue]
        )

    def holds(self, version: int, sha256: str | None) -> bool:
        """Tell whether a row belongs to this content."""
        return version == self.version and (None in (sha256, self.sha256) or sha256 == self.sha256)


def newest(contents: dict[str, Content], image: str, version: int, sha256: str | None) -> Content:
    """Return the last content of an image, after a row of it was met.

    >>> found = {}
    >>> [newest(found, "a", *row).version for row in ((0, "x"), (1, "y"), (0, "x"))]
    [0, 1, 1]
    """
    known = contents.get(image)
    if known is None or known.is_before(version, sha256):
        known = contents[image] = Content(version, sha256)
    elif known.sha256 is None and known.version == version:
        known.sha256 = sha256
    return known


@dataclass
class Committed:
    """The rows that a store has by now: for each image, those of its last content."""

    store: Store
    images: dict[str, Content] = field(default_factory=dict[str, Content])
    _seen: set[str] = field(default_factory=set[str])

    def refresh(self) -> None:
        """Read the rows that have appeared since the last time."""
        for row in self.store.known(self._seen):
            content = newest(self.images, row.image, row.version, row.image_sha256)
            if not content.holds(row.version, row.image_sha256):
                continue
            if row.table == "explanations":
                content.explained.add(row.identity)
            elif row.table == "negatives":
                content.negative.setdefault(row.rule, set()).add(row.identity)
            else:
                content.last_error = max(content.last_error, row.moment)
                if row.kind != "worker":  # a process that ended says little about it: try it again
                    content.failed.add(row.identity)

    def of(self, image: str) -> Content:
        """Return the last content of an image."""
        return self.images.get(image) or Content()
