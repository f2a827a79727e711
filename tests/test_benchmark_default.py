"""The benchmark of the default call: models for peers give the same score, and losses are named."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("skimage")
pytest.importorskip("rich")

import torch

from benchmarks.core.protocol import UnknownNameError
from benchmarks.experiments.default_call import MEASURES, OURS, PEERS, page
from benchmarks.experiments.default_questions import ClassAndRest, FromFunction, questions

IMAGES = np.random.default_rng(0).random((2, 3, 4, 4)).astype(np.float32)


def test_peers_see_the_probability_of_the_class():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 5))
    logits = network(torch.from_numpy(IMAGES))
    two = ClassAndRest(network, 3)(torch.from_numpy(IMAGES))
    torch.testing.assert_close(two[:, 1], logits[:, 3])
    torch.testing.assert_close(two.softmax(1)[:, 1], logits.softmax(1)[:, 3])


def test_peers_see_the_score_of_a_function():
    def scores(images):
        return images.mean(axis=(2, 3))

    two = FromFunction(scores, 2)(torch.from_numpy(IMAGES)).softmax(1)
    np.testing.assert_allclose(two[:, 1], scores(IMAGES)[:, 2], rtol=1e-5)


def test_the_page_names_a_loss_and_passes_over_a_tie():
    ours, peer = OURS[1].name, PEERS[0].name
    shown = page({"rows": {"pets": [*_rows(ours, 0.2, 0.5), *_rows(peer, 0.6, 0.5)]}})
    (line,) = [line for line in shown.splitlines() if line.startswith(f"| {peer} | -0.40")]
    assert line.count("**loses**") == 1
    assert "| +0.00 [+0.00, +0.00] |" in line


def test_an_unknown_set_is_refused_with_the_names_of_all():
    with pytest.raises(UnknownNameError, match="no set 'dogs'; there are coco-choosing, "):
        next(questions("dogs"))


def _rows(method, precision, others):
    measures = dict.fromkeys(MEASURES, others) | {"average_precision": precision}
    fixed = {"evaluations": 10, "seconds": 1.0, "commit": "c", "date": "d"}
    return [{"method": method, "image": str(n), **measures, **fixed} for n in range(6)]
