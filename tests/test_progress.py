"""Long work shows how far it is, on a terminal and without one."""

from __future__ import annotations

import re
import time

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import hshap
from hshap.cli.progress import Shown, bar, each


def lines(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line]


def awaited(count, capsys):
    """Wait until so many lines are there; return them."""
    found, end = [], time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < end, found
        time.sleep(0.01)
        found += lines(capsys)
    return found


def test_a_line_is_written_every_few_seconds(capsys):
    started = time.monotonic()
    with bar(4, 100, every=0.05) as progress:
        progress(hshap.protocols.Progress(evaluations=50, explanations=1, waiting=0))
        lines(capsys)  # of the time before
        found = awaited(3, capsys)
    found += lines(capsys)
    assert len(found) <= (time.monotonic() - started) / 0.05
    pattern = r"hshap: explaining: 1 of 4, 50 evaluations, \d+/s, [\d.]+ s, about [\d.]+ s left"
    assert all(re.fullmatch(pattern, line) for line in found), found
    with Shown("first call of the model", every=0.05):  # a single slow step
        assert all("first call of the model: " in line for line in awaited(2, capsys))


def test_the_time_left_counts_the_evaluations_that_are_left():
    with bar(4, 100) as progress:
        # Of 400 evaluations at most, 300 are left; later, as many as an explanation took so far.
        for done, evaluations, left in ((0, 100, 300), (3, 200, 200 / 3), (4, 267, 0)):
            before = progress.shown.seconds
            progress(hshap.protocols.Progress(evaluations, explanations=done, waiting=4 - done))
            after = progress.shown.seconds
            shares = [progress.shown.left / seconds for seconds in (after, before)]
            assert shares[0] <= left / evaluations <= shares[1] + 1e-9
        assert "left" not in progress.shown.line


def test_of_works_inside_each_other_the_inner_one_is_shown(capsys):
    with Shown("outer", every=0.02), Shown("inner", every=0.02):
        awaited(3, capsys)  # the outer one may have been shown before
        found = awaited(3, capsys)
    assert all("inner" in line for line in found)


def test_short_work_writes_nothing(capsys):
    with bar(1) as progress:
        progress(hshap.protocols.Progress(evaluations=1, explanations=1, waiting=0))
    with each("reading images", (1, 2, 3)) as items:
        assert list(items) == [1, 2, 3]
    assert lines(capsys) == []


def test_work_that_fails_ends_its_lines(capsys):
    with (  # noqa: PT012, the items are counted while they are worked on
        pytest.raises(KeyError),
        each("reading images", range(3), every=0.05) as items,
    ):
        for item in items:
            assert item or "reading images: 0 of 3" in awaited(1, capsys)[0]
            if item == 1:
                raise KeyError(item)
    lines(capsys)
    time.sleep(0.12)
    assert lines(capsys) == []  # the thread has ended
