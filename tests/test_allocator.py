"""Memory that is kept: counted by page faults, which do not depend on the load of the machine."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import hshap

pytest.importorskip("resource")

ARRAYS, SIZE = 8, 2**25

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"),
    reason="only glibc returns large blocks at once",
)


@pytest.fixture(autouse=True)
def own_allocator(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)


def in_a_fresh_process(code):
    """Run code that counts the pages which the system provides for some new arrays.

    The process is a new one: the setting is one of the whole process, and so is its memory.
    """
    lines = f"""
        import resource, numpy as np, hshap
        ARRAYS, SIZE = {ARRAYS}, {SIZE}
        def faults():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(ARRAYS):
                np.full(SIZE, 1, np.uint8)
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    """
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", textwrap.dedent(lines) + textwrap.dedent(code)],
        check=True,
        capture_output=True,
        text=True,
    )
    return [int(word) for word in done.stdout.split()]


def test_kept_memory_is_reused_and_returned_at_the_end():
    # Transparent huge pages would lower the counts, so they are compared with each other.
    before, was_active, inner, outer, is_active, after, held = in_a_fresh_process(
        """
        before = faults()
        with hshap.keep_memory() as kept:
            was_active = kept.active
            faults()
            with hshap.keep_memory():
                inner = faults()
            outer = faults()
        after = faults()
        is_active = kept.active
        hshap.keep_memory()
        faults()
        print(before, int(was_active), inner, outer, int(is_active), after, faults())
        """
    )
    assert (was_active, is_active) == (1, 0)
    assert max(inner, outer) < before / 8, "the inner end must not undo the outer one"
    assert after > before / 2
    assert held < before / 8


def test_settings_of_the_user_are_respected(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    with hshap.keep_memory() as kept:
        assert not kept.active


def test_scores_are_the_same_bit_for_bit():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(2)
    ).eval()
    image = np.random.default_rng(0).random((1, 32, 32), np.float32)
    network(torch.from_numpy(image[None]))
    explainer = hshap.Explainer(
        network, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=8)
    )
    found = explainer.explain(image, target=1)
    with hshap.keep_memory():
        kept = explainer.explain(image, target=1)
    assert np.array_equal(found.attribution(), kept.attribution())
