"""The bounded cache keeps the values that were used last, up to its limit."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from hshap._util.cache import BoundedCache, ByIdentity


def test_the_least_recently_used_goes_first():
    cache = BoundedCache[str](limit=10, weight=len)
    cache.put("a", "old")
    for key, value in {"a": "1234", "b": "5678"}.items():
        cache.put(key, value)  # a value that is put again counts once
    assert (cache.get("b"), cache.get("a"), cache.weight) == ("5678", "1234", 8)
    cache.put("c", "123")
    assert [key in cache for key in "abc"] == [True, False, True]
    cache.put("d", "x" * 20)  # too heavy, but the newest
    assert [key in cache for key in "abcd"] == [False, False, False, True]


def test_arrays_are_told_apart_by_identity():
    cache, array = BoundedCache[str](limit=1), np.zeros(3)
    alive = weakref.ref(array)
    cache.put(ByIdentity(array), "kept")
    assert cache.get(ByIdentity(array)) == "kept"
    assert cache.get(ByIdentity(array.copy())) is None
    del array
    gc.collect()
    assert alive() is not None  # no later array can take over its identity
    cache.put("another", "value")
    gc.collect()
    assert alive() is None
