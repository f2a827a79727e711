"""Explanations in threads and worker processes are those of the main process, and none hangs.

Worker processes that are spawned import torch anew, which takes seconds; one test does it.
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.utils.data import DataLoader, Dataset

from hshap import Conditional, Constant, Dyadic, Explainer, Fixed, Incremental, Similar, Superpixels
from hshap.protocols import CostPolicy

SECONDS = 600
"""Until a worker counts as hanging; on a busy machine, to import torch takes many of them."""

IMAGES = np.random.default_rng(0).random((4, 2, 32, 32), dtype=np.float32)
CAN_FORK = "fork" in multiprocessing.get_all_start_methods()


def brightest(batch):
    return batch.max(axis=(1, 2, 3))


def network():
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveMaxPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 2)).eval()


def explainer(kind):
    if kind == "function":
        return Explainer(brightest, Constant(0.0), Dyadic(8))
    if kind == "module":
        return Explainer(network(), Fixed(IMAGES.mean(0)), Superpixels(min_area=64))
    if kind == "conditional":
        sampler = Similar(IMAGES, bandwidth=0.2)
        return Explainer(network(), Conditional(sampler, draws=2), Dyadic(8))
    return Explainer(
        Incremental(network(), cost_policy=CostPolicy.always()), Constant(0.0), Dyadic(8)
    )


KINDS = ["function", "module", "conditional", "incremental"]


def numbers(found):
    return np.concatenate([game.values for game in found.games])


class Explained(Dataset):
    """A dataset whose items are computed by an explainer, in the process that loads them."""

    def __init__(self, made):
        self.made = made

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, position):
        return numbers(self.made.explain(torch.from_numpy(IMAGES[position]), target=0))


class Pairs(Dataset):
    """A dataset of images and classes, as tensors."""

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, position):
        return torch.from_numpy(IMAGES[position]), 0


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    """An explainer that was used before, and the values that it gives."""
    made = explainer(request.param)
    return made, [numbers(made.explain(image, target=0)) for image in IMAGES]


def test_a_pickled_copy_gives_the_same(case):
    made, expected = case
    again = pickle.loads(pickle.dumps(made))  # noqa: S301, our own bytes
    for image, values in zip(IMAGES, expected, strict=True):
        assert np.array_equal(numbers(again.explain(image, target=0)), values)


def test_threads_give_the_same(case):
    made, expected = case
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            futures = [pool.submit(made.explain, image, 0) for image in IMAGES]
            for future, values in zip(futures, expected, strict=True):
                assert np.array_equal(numbers(future.result(SECONDS)), values)


# No networks: MKL may wait for ever in a process that was forked while another thread had used it.
@pytest.mark.parametrize("case", ["function"], indirect=True)
@pytest.mark.skipif(not CAN_FORK, reason="processes cannot fork here")
def test_forked_workers_of_a_loader_give_the_same(case):
    made, expected = case
    loader = DataLoader(
        Explained(made),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="fork",
        timeout=SECONDS,
    )
    for found, values in zip(loader, expected, strict=True):
        assert np.array_equal(found, values)


@pytest.mark.exhaustive
def test_spawned_workers_of_a_loader_give_the_same():
    made = explainer("incremental")
    expected = [numbers(made.explain(image, target=0)) for image in IMAGES]
    loader = DataLoader(
        Explained(made),
        batch_size=None,
        num_workers=1,
        multiprocessing_context="spawn",
        timeout=SECONDS,
    )
    for found, values in zip(loader, expected, strict=True):
        assert np.array_equal(found, values)


@pytest.mark.skipif(not CAN_FORK, reason="processes cannot fork here")
def test_a_loader_with_workers_feeds_explain_many(case):
    made, expected = case
    loader = DataLoader(
        Pairs(), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=SECONDS
    )
    found = {one.position: numbers(one) for one in made.explain_many(loader)}
    assert sorted(found) == list(range(len(IMAGES)))
    for position, values in enumerate(expected):
        np.testing.assert_allclose(found[position], values, rtol=1e-5)


def test_a_traced_network_disturbs_no_other_thread():
    """Tracing replaces the forward pass of modules, which must not reach another thread."""
    inside, go_on = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3)

        def forward(self, x):
            inside.set()
            assert go_on.wait(SECONDS)
            return self.conv(x).amax(dim=(2, 3))

    net, batch = network(), torch.from_numpy(IMAGES)
    slow = Explainer(
        Incremental(Waits().eval(), cost_policy=CostPolicy.always()), Constant(0.0), Dyadic(8)
    )
    with torch.inference_mode():
        expected = net(batch)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(slow.explain, IMAGES[0], 0)
        assert inside.wait(SECONDS)
        try:
            with torch.inference_mode():
                found = net(batch)
        finally:
            go_on.set()
        assert future.result(SECONDS).games
    assert torch.equal(found, expected)
