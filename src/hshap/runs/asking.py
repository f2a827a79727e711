"""Asking: reads an image for the explainer, with the targets whose rows the folder lacks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from hshap._util.visible import as_text
from hshap.errors import ArgumentError
from hshap.games.targets import as_targets, describe_target
from hshap.runs.large import forget_parts, parts_key
from hshap.runs.sources.protocol import Decoded
from hshap.runs.storing.rows import Origin
from hshap.runs.tasks import Chosen, texts_of

if TYPE_CHECKING:
    from hshap._util.types import Array, Grid
    from hshap.explainer import Explainer
    from hshap.explainer.readings import Pair
    from hshap.explanation.placement import Position
    from hshap.games.targets import Target
    from hshap.runs.sources.protocol import Source
    from hshap.runs.storing.files import Files
    from hshap.runs.storing.identity import Fingerprint
    from hshap.runs.tasks import AnyTarget, Work


@dataclass(frozen=True)
class Asked:
    """An image in the hands of the explainer: its targets that are not explained yet."""

    work: Work
    origins: dict[int | str, Origin]
    identity: str
    sha256: str
    place: tuple[Grid, Position, Position] | None

    @property
    def wanted(self) -> tuple[str, ...]:
        """The targets that are asked for."""
        return tuple(origin.target for origin in self.origins.values())


class UnreadError(Exception):
    """An image that could not be read: its state, and the identity of its error."""

    def __init__(
        self,
        work: Work,
        identity: str,
        sha256: str | None,
        wanted: tuple[str, ...],
        reason: Exception,
    ) -> None:
        super().__init__(work, identity, sha256, wanted, reason)
        self.work, self.identity, self.sha256 = work, identity, sha256
        self.wanted, self.reason = wanted, reason


@dataclass(frozen=True)
class Asking:
    """Reads images and settles their targets.

    `targets` is None if the data set gives the class of each image. `unfinished` are the files with
    the finished parts of large images; None where no image is large.
    """

    explainer: Explainer
    source: Source
    fingerprint: Fingerprint
    targets: tuple[AnyTarget, ...] | None
    unfinished: Files | None

    def pair(self, work: Work, asked: list[Asked]) -> Pair | None:
        """Read an image, and note it in `asked`; None if the folder has its rows, or its error."""
        sha256, asked_for = None, tuple[str, ...]()
        print_of = self.fingerprint
        try:
            read = self.source.read(work.item)
            sha256 = read.sha256
            work = work.seen(sha256)
            targets = self._targets(read.label)
            identities = {text: print_of.identity(text, sha256) for text in targets}
            identity = print_of.identity(f"all of {sorted(targets)}", sha256)
            known = work.explained | work.negative
            missing = {text: one for text, one in identities.items() if one not in known}
            if not missing and self.unfinished is not None:
                # Of a worker that was killed after its commit.
                forget_parts(self.unfinished, parts_key(identity, work.item.name))
            if not missing or identity in work.failed:
                return None
            asked_for = tuple(missing)
            decoded = read.image()
            transform, place = {}, None
            if isinstance(decoded, Decoded):
                transform, place = decoded.transform, decoded.place
                decoded = decoded.image
            wanted = {text: self._settled(targets[text], decoded) for text in missing}
        except Exception as error:
            identity = print_of.identity("no image", sha256 or work.item.name)
            if identity in work.failed:
                return None
            raise UnreadError(work, identity, sha256, asked_for, error) from error
        origins = {
            describe_target(target): Origin(
                work.item.name,
                identities[text],
                as_text(read.path),
                sha256,
                text,
                json.dumps(transform, sort_keys=True) if transform else "",
                work.version,
            )
            for text, target in wanted.items()
        }
        asked.append(Asked(work, origins, identity, sha256, place))
        return cast("Pair", (decoded, list(wanted.values())))

    def _targets(self, label: object) -> dict[str, AnyTarget]:
        """Return the targets of an image by the texts that tell them apart."""
        given = self.targets
        if given is None:
            if label is None:
                message = "target is missing: the data set gives no class for this image; pass one"
                raise ArgumentError(message)
            if isinstance(label, Exception):
                raise label
            given = as_targets(label, self.explainer.facts.index)
        return texts_of(given)

    def _settled(self, target: AnyTarget, image: object) -> Target:
        if isinstance(target, Chosen):
            return target.choose(self.explainer, cast("Array", image))
        return target
