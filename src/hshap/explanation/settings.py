"""How a run was made: the one place that reads the description stored with an explanation.

Everything else asks for typed facts. The description itself is JSON, for people and for files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, cast

from hshap._util import checks
from hshap._util.axes import grid_letters
from hshap._util.recipes import describe
from hshap._util.version import __version__
from hshap.errors import ArgumentError
from hshap.games.search import BreadthFirst, DepthFirst, GroupTesting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.axes import Spacing
    from hshap._util.types import Json, JsonObject, Untyped

AUTO, LONGEST = "auto", 400
UNEXPLAINED = "none: the image is negative"
KNOWN_SEARCHES = {
    "DepthFirst": DepthFirst,
    "BreadthFirst": BreadthFirst,
    "GroupTesting": GroupTesting,
}


@dataclass(frozen=True, eq=False)
class Settings(Mapping[str, "Json"]):
    """The description of a run: a read-only mapping, and typed facts for reading it again.

    >>> import hshap
    >>> made = hshap.demo.example().settings
    >>> made["partition"], made.search.tolerance, made.min_size
    ({'type': 'Dyadic', 'min_size': 1}, 0.0, 1)
    """

    document: Mapping[str, Json] = field(default_factory=dict[str, "Json"])

    @classmethod
    def of(cls, **recipes: object) -> Settings:
        """Return the description of a run with these recipes, by name."""
        return cls({"hshap": __version__, **{k: describe(v) for k, v in recipes.items()}})

    def __getitem__(self, name: str) -> Json:
        # A copy, since explanations of one run share the description.
        return deepcopy(self.document[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    @cached_property
    def search(self) -> DepthFirst | BreadthFirst | GroupTesting | None:
        """The search that made the run; None for a search that is not one of hshap's."""
        options = dict(_mapping(self.document.get("search")))
        make = KNOWN_SEARCHES.get(str(options.pop("type", "")))
        return None if make is None else make(**cast("dict[str, Untyped]", options))

    @property
    def search_name(self) -> str:
        """The class of the search."""
        return str(_mapping(self.document.get("search")).get("type"))

    @property
    def drops_nothing(self) -> bool:
        """Whether every region that was not split has its share, the findings among them."""
        return self.search_name == "BestFirst"

    @property
    def has_contexts(self) -> bool:
        """Whether games were played in several contexts: alone, missing and maybe mixed ones."""
        return self.drops_nothing and _mapping(self.document.get("search")).get("contexts") != 1

    @property
    def has_cells(self) -> bool:
        """Whether regions are cells around the differences from a template."""
        return self.partition_name == "Spots"

    @property
    def partition_name(self) -> str:
        """The class of the partition."""
        return str(_mapping(self.document.get("partition")).get("type"))

    @property
    def min_size(self) -> int | tuple[int, ...] | None:
        """Side below which the grid was not split; None if it was not given."""
        given = self._innermost.get("min_size")
        if isinstance(given, (list, tuple)) and all(isinstance(side, int) for side in given):
            return tuple(cast("Sequence[int]", given))
        return given if isinstance(given, int) else None

    @property
    def spacing(self) -> Spacing | None:
        """The side of a pixel of the grid on each axis, in one unit; None if it is not known."""
        given = self.document.get("spacing")
        if not isinstance(given, (list, tuple)):
            return None
        sides = tuple(float(side) for side in given if isinstance(side, (int, float)))
        fits = len(sides) == len(given) and all(0 < side < inf for side in sides)
        return sides if fits and sides else None

    @property
    def axes(self) -> str:
        """One letter for each axis of the grid, such as "ZYX"; empty if no layout was given."""
        layout = self.document.get("layout")
        return grid_letters(layout) if isinstance(layout, str) else ""

    @property
    def slice_axis(self) -> int | None:
        """The axis of slices, if the run looked at slices first; else None."""
        partition = _mapping(self.document.get("partition"))
        axis = partition.get("axis")
        is_sliced = partition.get("type") == "BySlices"
        return axis if is_sliced and isinstance(axis, int) and axis >= 0 else None

    def of_slice(self, axis: int) -> Settings:
        """Return the description of the run inside one slice."""
        document = {name: value for name, value in self.document.items() if name != "layout"}
        document["partition"] = _mapping(document.get("partition")).get("partition")
        sides = self.spacing
        if sides is not None:
            document["spacing"] = [*sides[:axis], *sides[axis + 1 :]]
        return replace(self, document=document)

    @property
    def min_area(self) -> int | None:
        """Area below which regions were not split; None if it was not given."""
        given = self._innermost.get("min_area")
        return given if isinstance(given, int) else None

    @property
    def adaptive(self) -> bool:
        """Whether branches ended by the automatic rule, also if the run was read again since."""
        inner = self._innermost
        if "adaptive" in inner:
            return bool(inner["adaptive"])
        return AUTO in (inner.get("min_size"), inner.get("min_area"))

    @property
    def source(self) -> JsonObject:
        """Names of image, class and model, where the command line made the run."""
        return _mapping(self.document.get("source"))

    @property
    def chosen(self) -> str:
        """The choices that were not the caller's, with their reasons; empty if there are none."""
        return _short(self.document.get("chosen"))

    @property
    def negative(self) -> str:
        """Why the model does not decide for the target on this image; empty if it does."""
        return _short(self.document.get("negative"))

    @property
    def probability(self) -> float | None:
        """The model's probability of the explained class on the whole image, if it is known."""
        given = self.document.get("probability")
        return float(given) if isinstance(given, (int, float)) and 0 <= given <= 1 else None

    @property
    def is_explained(self) -> bool:
        """Whether there was a search: a run explains no image that the model calls negative."""
        return self.document.get("search") != UNEXPLAINED

    def updated(self, **changes: object) -> Settings:
        """Return a copy with other entries."""
        if not changes:
            return self
        described = {name: describe(value) for name, value in changes.items()}
        return Settings({**self.document, **described})

    def at_size(self, min_size: int | tuple[int, ...], axes: int) -> Settings:
        """Return the description of a reading at a larger `min_size`."""
        own = self.min_size
        # A partition of the user's may mean something else by sides that do not fit the grid.
        if isinstance(own, int) or (own is not None and len(own) == axes):
            before = checks.per_axis("min_size", own, axes)
            after = checks.per_axis("min_size", min_size, axes)
            if any(new < old for new, old in zip(after, before, strict=True)):
                shown = self._innermost["min_size"]
                message = (
                    f"min_size={min_size} is finer than the {shown} of this run; explain again"
                )
                raise ArgumentError(message)
        return self._with_partition(min_size=describe(min_size))

    def at_area(self, min_area: int) -> Settings:
        """Return the description of a reading at a larger `min_area`."""
        if self.min_area is not None and min_area < self.min_area:
            message = (
                f"min_area={min_area} is finer than the {self.min_area} of this run; explain again"
            )
            raise ArgumentError(message)
        return self._with_partition(min_area=min_area)

    def at_automatic_size(self) -> Settings:
        """Return the description of a reading by the automatic rule."""
        return self._with_partition(adaptive=True)

    @property
    def _innermost(self) -> JsonObject:
        """The partition that others, such as `Shifted`, only move."""
        partition = _mapping(self.document.get("partition"))
        while "partition" in partition:
            partition = _mapping(partition["partition"])
        return partition

    def _with_partition(self, **changes: Json) -> Settings:
        if self.adaptive:
            changes.setdefault("adaptive", self.adaptive)
        partition = _with_innermost(_mapping(self.document.get("partition")), changes)
        return replace(self, document={**self.document, "partition": partition})


def _with_innermost(partition: JsonObject, changes: Mapping[str, Json]) -> dict[str, Json]:
    if "partition" in partition:
        inner = _with_innermost(_mapping(partition["partition"]), changes)
        return {**partition, "partition": inner}
    return {**partition, **changes}


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _short(value: object) -> str:
    """Return a text to show; a file of others may hold a long one."""
    text = str(value or "")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
