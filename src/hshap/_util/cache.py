"""One bounded cache: it forgets the entries that were not used for longest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

V = TypeVar("V")


class ByIdentity:
    """A key that equals only itself: two arrays of equal content stay apart.

    It holds on to the object, so that no later object can take over its identity.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class BoundedCache(Generic[V]):
    """Keep values up to a total weight; the least recently used ones go first.

    By default every value weighs 1, so `limit` is their number. The newest value stays even if it
    weighs more than the limit alone.

    >>> cache = BoundedCache[int](limit=2)
    >>> for name in "abc":
    ...     cache.put(name, ord(name))
    >>> cache.get("a"), cache.get("c")
    (None, 99)
    """

    def __init__(self, limit: float, weight: Callable[[V], float] = lambda _: 1.0) -> None:
        self._limit, self._weight = limit, weight
        self._values: dict[Hashable, V] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    @property
    def weight(self) -> float:
        """Total weight of the values."""
        return sum(map(self._weight, self._values.values()))

    def get(self, key: Hashable) -> V | None:
        """Return a value and mark it as used, or None."""
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def put(self, key: Hashable, value: V) -> None:
        """Keep a value, at the expense of the least recently used ones."""
        self._values.pop(key, None)
        room = self._limit - self._weight(value)
        while self._values and self.weight > room:
            del self._values[next(iter(self._values))]
        self._values[key] = value
