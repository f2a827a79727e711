"""Boxes inside of known boxes are computed along their sides, and agree with full passes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional as f

from hshap import Box, Constant, CostPolicy, Fixed, Incremental
from hshap.evaluators.batched import Batched
from hshap.evaluators.canvas import Canvas, Row, StandIns
from hshap.evaluators.incremental.drawing import pieces_of
from hshap.evaluators.incremental.frames import Frame
from hshap.evaluators.incremental.known_boxes import BoxOfImage, KnownBoxes
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.rectangles import shown_box
from hshap.evaluators.incremental.traced_network import Network, ShownBox

GRID = (400, 420)
NESTED = (
    *(((0, 0), (400, 210)), ((200, 0), (400, 210)), ((200, 105), (400, 210))),
    *(((200, 105), (300, 210)), ((250, 130), (300, 180)), ((0, 210), (400, 420))),
)
ROOM_FOR_ONE = 10_000_000


class Net(nn.Module):
    """Strides, two-sided padding, dilation, a skip connection, upsampling and circular padding."""

    def __init__(self, *, wraps: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 5, stride=2, padding=2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.wide = nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        mode = "circular" if wraps else "zeros"
        self.same = nn.Conv2d(4, 4, (3, 5), padding="same", padding_mode=mode)
        self.last = nn.Conv2d(8, 6, 3, padding=(0, 1))

    def forward(self, x):
        first = f.relu(self.stem(x))
        small = self.pool(first)
        small = f.relu(small + self.same(f.relu(self.wide(small))))
        large = f.interpolate(f.pad(small, (0, 1, 2, 0)), scale_factor=2, mode="bilinear")
        return self.last(torch.cat([large[..., :200, :210], first], 1)).mean((2, 3))


class Plain(Net):
    """The same without a slice, which has no rule."""

    def forward(self, x):
        first = f.relu(self.stem(x))
        small = self.pool(first)
        small = f.relu(small + self.same(f.relu(self.wide(small))))
        large = f.interpolate(small, scale_factor=2, mode="bilinear")
        return self.last(torch.cat([large, first], 1)).mean((2, 3))


def network(kind=Plain, *, wraps=False):
    torch.manual_seed(0)
    return kind(wraps=wraps).eval()


def rows_of(session, coalitions):
    rng = np.random.default_rng(0)
    image, baseline = (rng.random((3, *GRID), dtype=np.float32) for _ in range(2))
    stand_ins = StandIns(Fixed(baseline)(image), image.shape, session.put)
    root = Box((0, 0), GRID)
    canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
    shown = [(root,), (), *coalitions]
    return [Row(canvas, kept, 0) for kept in shown]


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("kind", [Plain, Net])
@pytest.mark.parametrize("channels_last", [False, True])
def test_boxes_score_like_full_passes(kind, wraps, channels_last):
    model = network(kind, wraps=wraps)
    coalitions = [(Box(*corners),) for corners in NESTED]
    coalitions += [(Box((0, 0), (100, 100)), Box((0, 100), (100, 200)))]  # one box of two
    coalitions += [(Box((0, 0), (100, 100)), Box((200, 200), (300, 300)))]  # no box
    way = Incremental(model, cost_policy=CostPolicy.always(), channels_last=channels_last)
    session = way.open_session()
    rows = rows_of(session, coalitions)
    # One by one, so that each box is known when its parts come.
    found = np.concatenate([session.score([row]) for row in rows])
    expected = (
        Batched(model).open_session().score(rows_of(Batched(model).open_session(), coalitions))
    )
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    # A network for images of one size is compared on the first box, so two rows ran before that.
    assert session.provenance(0).incremental == len(rows) - (2 if kind is Net else 0)
    assert session.provenance(0).comparison == "passed"


REDUCTIONS = {
    "amax": lambda x: x.amax((2, 3)),
    "amin, axes kept": lambda x: torch.amin(x, (-1, -2), keepdim=True).flatten(1),
    "sum": lambda x: x.sum((2, 3)),
    "mean": lambda x: torch.mean(x, (2, 3)),
    "max pool": lambda x: f.adaptive_max_pool2d(x, 1).flatten(1),
    "mean pool": lambda x: f.adaptive_avg_pool2d(x, 1).flatten(1),
    "rows": lambda x: x.amax(2).amin(2),  # not over all places at once, so it runs in full
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reductions_of_boxes_are_those_of_full_tensors(name, dtype):
    class Reduced(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x):
            return REDUCTIONS[name](self.conv(x))

    torch.manual_seed(0)
    model = Reduced().eval().to(dtype)
    net = Network(model)
    image, anchor = torch.rand(2, 1, 3, 60, 70, dtype=dtype) - 0.5
    outside, inside = net.activations(anchor)[0], net.activations(image)[0]
    around, one = net.whole(inside), {torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    with torch.inference_mode():
        for first, last in (((0, 0), (60, 35)), ((20, 0), (60, 35)), ((20, 10), (40, 30))):
            box = slice(first[0], last[0]), slice(first[1], last[1])
            painted = anchor.clone()
            painted[..., *box] = image[..., *box]
            found, (around,) = net.run_boxes([(first, last)], [around], outside, image)
            torch.testing.assert_close(found, model(painted), rtol=8 * one, atol=4 * one)
    assert net.needs_full_tensors == (name == "rows")


def test_without_room_for_the_image_scores_are_the_same():
    model, coalitions = network(), [(Box(*corners),) for corners in NESTED]
    found, kept = {}, {}
    for memory in (ROOM_FOR_ONE, 2**30):
        way = Incremental(model, cost_policy=CostPolicy.always(), max_memory=memory)
        session = way.open_session()
        found[memory] = np.concatenate([session.score([r]) for r in rows_of(session, coalitions)])
        kept[memory] = session.kept_bytes
        assert session.kept_bytes <= memory
    assert kept[ROOM_FOR_ONE] < kept[2**30] / 1.5
    assert np.allclose(found[ROOM_FOR_ONE], found[2**30], rtol=1e-5, atol=1e-6)


def test_a_box_inside_of_a_known_box_needs_one_strip():
    net = Network(network())
    image, anchor = torch.rand(1, 3, *GRID), torch.rand(1, 3, *GRID)
    outside, inside = net.activations(anchor)[0], net.activations(image)[0]
    whole = net.whole(inside)
    sizes = {}
    with torch.inference_mode():
        _, (left,) = net.run_boxes([((0, 0), (400, 210))], [whole], outside, image)
        for name, around in (("image", whole), ("half", left)):
            _, (found,) = net.run_boxes([((200, 0), (400, 210))], [around], outside, image)
            sizes[name] = found.bytes
    assert sizes["half"] < 0.6 * sizes["image"]


def test_known_boxes_are_forgotten_when_they_take_too_much_memory():
    net = Network(network())
    anchors = [_anchor(net, torch.rand(1, 3, 40, 40)) for _ in range(2)]
    known, half, quarter = KnownBoxes(), ((0, 0), (40, 20)), ((0, 0), (20, 20))
    _add(known, anchors, half, size=60)
    assert known.smallest_around(quarter, *anchors).corners == half
    assert known.smallest_around(half, *anchors).corners == ((0, 0), (40, 40))
    assert known.smallest_around(quarter, *anchors[::-1]).corners == ((0, 0), (40, 40))
    _add(known, anchors, quarter, size=60)
    assert known.bytes == 60
    assert known.smallest_around(((0, 0), (9, 9)), *anchors).corners == quarter
    _add(known, anchors, quarter, size=60)  # once more
    assert known.bytes == 60
    _add(known, anchors, ((0, 0), (9, 9)), size=101)
    assert known.bytes == 0
    _add(known, anchors, half, size=60)
    _add(known, anchors, quarter, size=60, parts=True)  # it would hold the memory of the half
    assert known.bytes == 0


def _add(known, anchors, corners, size, *, parts=False):
    known.add([ShownBox(corners, {}, size)], *anchors, max_bytes=100, parts=parts)


@pytest.mark.parametrize("room", [2**30, 1_000_000, 500_000, 250_000, 50_000])
def test_known_boxes_hold_no_more_memory_than_allowed(room):
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
    net = Network(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval())
    outside, image = (_anchor(net, torch.rand(1, 3, 400, 400)) for _ in range(2))
    others = {t.untyped_storage().data_ptr() for a in (outside, image) for t in _tensors(a)}
    known, most = KnownBoxes(), 0
    for side in (200, 100, 50):
        starts = [(a, b) for a in range(0, 400, side) for b in range(0, 400, side)]
        boxes = [BoxOfImage(((a, b), (a + side, b + side)), image) for a, b in starts]
        for first in range(0, len(boxes), 16):
            known.scores(boxes[first : first + 16], outside, room)
            held = {p.data_ptr(): p.nbytes() for p in _storages(known)}
            assert sum(n for at, n in held.items() if at not in others) == known.bytes <= room
            most = max(most, known.bytes)
    assert most > 0 or room == 50_000


def _tensors(anchor):
    kept = anchor.activations.values()
    return [anchor.tensor, *(tensor for tensor in kept if tensor.device.type != "meta")]


def _storages(known):
    boxes = [box for several in known._boxes.values() for box in several.values()]
    pieces = [piece for box in boxes for several in box.pieces.values() for piece in several]
    return [p.data.untyped_storage() for p in pieces if p.data.device.type != "meta"]


def _anchor(net, tensor):
    from hshap.evaluators.incremental.activation_cache import Anchor

    activations, output = net.activations(tensor)
    return Anchor(net, tensor, activations, output.numpy()[0], 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([((1, 2), (3, 4))], ((1, 2), (3, 4))),
        ([((0, 0), (2, 2)), ((0, 2), (2, 5))], ((0, 0), (2, 5))),
        ([((0, 0), (2, 2)), ((0, 3), (2, 5))], None),  # a gap
        ([((0, 0), (2, 2)), ((0, 1), (2, 3)), ((0, 3), (2, 5))], None),  # an overlap
        ([((0, 0), (2, 3)), ((0, 2), (2, 4)), ((0, 5), (2, 6))], None),  # both, the area is right
        ([], None),
    ],
)
def test_boxes_that_fill_a_box_are_one(boxes, expected):
    image = np.zeros((1, 8, 8), np.float32)
    stand_ins = StandIns(Constant(0.0)(image), image.shape, np.asarray)
    canvas = Canvas(image, stand_ins, Box((0, 0), (8, 8)), put=np.asarray, position=0)
    assert shown_box(Row(canvas, tuple(Box(*corners) for corners in boxes), 0)) == expected


def test_strips_are_compared_with_the_rectangle_that_would_replace_them():
    # The rectangle of the first row is its strip; that of the second one is four times as large.
    anchor, data = torch.zeros(1, 1, 12, 12), torch.zeros(2, 1, 2, 4)
    strip = Patch(data, ((0, 0), (6, 2)), anchor)
    larger = tuple(pieces_of(torch.zeros(1, 1, 8, 4), [start]) for start in ((0, 0), (0, 2)))
    frame = Frame((strip,), (((0, True),),) * 2, larger)
    assert frame.size == (8, 4)
    assert frame.share == 2 * 4 / (8 * 4)
