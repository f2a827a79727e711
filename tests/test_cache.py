"""The bounded cache keeps the values that were used last, up to its limit."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from hshap._util.cache import BoundedCache, ByIdentity


def test_the_least_recently_used_value_goes_first():
    cache = BoundedCache[str](limit=2)
    cache.put("a", "first")
    cache.put("b", "second")
    assert cache.get("a") == "first"
    cache.put("c", "third")
    assert [key in cache for key in "abc"] == [True, False, True]


def test_values_are_counted_by_their_weight():
    cache = BoundedCache[str](limit=10, weight=len)
    for key, value in {"a": "1234", "b": "5678", "c": "123"}.items():
        cache.put(key, value)
    assert [key in cache for key in "abc"] == [False, True, True]
    assert cache.weight == 7
    cache.put("d", "x" * 20)  # too heavy, but the newest
    assert [key in cache for key in "abcd"] == [False, False, False, True]


def test_a_value_that_is_put_again_counts_once():
    cache = BoundedCache[str](limit=2)
    for value in ("old", "new"):
        cache.put("a", value)
    cache.put("b", "other")
    assert (cache.get("a"), cache.get("b")) == ("new", "other")


def test_arrays_are_told_apart_by_identity():
    cache, array = BoundedCache[str](limit=2), np.zeros(3)
    cache.put(ByIdentity(array), "kept")
    assert cache.get(ByIdentity(array)) == "kept"
    assert cache.get(ByIdentity(array.copy())) is None


def test_an_array_lives_as_long_as_its_value_is_kept():
    cache, array = BoundedCache[str](limit=1), np.zeros(3)
    alive = weakref.ref(array)
    cache.put(ByIdentity(array), "kept")
    del array
    gc.collect()
    assert alive() is not None  # no later array can take over its identity
    cache.put("another", "value")
    gc.collect()
    assert alive() is None
