"""The page of the speed table, made from its measurements."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.core.markdown import table
from benchmarks.speed.goals import Goal
from benchmarks.speed.speed_goals import REFERENCE, Measured


def markdown(content: dict[str, Any]) -> str:
    """Return the page."""
    done: Measured = content["measured"]
    made = (
        f"Made by `benchmarks/run speed` on {content['date']}, commit {content['commit']}, two "
        "threads. Measurements that take seconds are medians of up to three runs in turns. "
        "`speed_table.py` says how each is measured. A measurement that is not repeated "
        "keeps its old value, so rows can be of different commits."
    )
    goals = [Goal(**goal) for goal in content["goals"]]
    parts = ["# Speed", made, _goals(goals)]
    parts += [part for each in PARTS for part in each(done)]
    return "\n\n".join([*parts, "![](speed.png)"]) + "\n"


def _shares(done: Measured) -> list[str]:
    found = [taken[0] for name, taken in done.items() if name.startswith("share, ")]
    rows = [
        (
            one["network"],
            " x ".join(map(str, one["grid"])),
            f"{one['seconds']:.1f}",
            *(f"{one['kinds'][kind] / one['seconds']:.0%}" for kind in ("network", "copies")),
        )
        for one in found
        if "share" in one
    ]
    header = ["network", "image", "seconds", "network's own operations", "copies"]
    return [
        "CPU time of `Incremental` for 14 markers, bisection, one thread:",
        table(header, rows),
    ]


def _goals(goals: list[Goal]) -> str:
    rows = [(g.case, g.goal, g.reached, g.verdict if g.met else f"**{g.verdict}**") for g in goals]
    return table(["case", "goal", "reached", ""], rows)


def _peers(done: Measured) -> list[str]:
    turns = [each["methods"] for each in done["crosses"]]
    images = done["crosses"][0]["images"]
    rows: list[tuple[str, ...]] = []
    for name, one in turns[0].items():
        seconds = median(turn[name]["seconds"] for turn in turns)
        share = median(turn[name]["seconds"] / turn[REFERENCE]["seconds"] for turn in turns)
        spent, f1 = one["evaluations"], one["f1_mean"]
        rows.append((name, f"{spent:.0f}", f"{seconds:.3f}", f"{share:.2f}", f"{f1:.2f}"))
    return [
        f"Synthetic images with 6 crosses, cells of 4 pixels, medians of {images}, one process:",
        table(["method", "evaluations", "seconds", "of the reference's time", "F1 at 1e-6"], rows),
    ]


def _growth(done: Measured) -> list[str]:
    sides = [taken[0] for name, taken in done.items() if name.startswith("side, ")]
    parts = [
        "Own time with an oracle that costs nothing, ten findings, bisection to 8 pixels:",
        table(
            ["side", "evaluations", "seconds", "peak memory, GB"],
            [
                (s["side"], s["evaluations"], f"{s['seconds']:.2f}", f"{s['peak_gb']:.2f}")
                for s in sides
            ],
        ),
    ]
    for name, key in (("by_size", "min_size"), ("by_classes", "classes"), ("by_images", "images")):
        rows = [
            (row[key], row["evaluations"], f"{row['seconds']:.3f}") for row in done[name][0]["rows"]
        ]
        parts.append(table([key, "evaluations", "seconds"], rows))
    return parts


def _incremental(done: Measured) -> list[str]:
    found = [taken[0] for name, taken in done.items() if name.startswith("agreement")]
    rows = [
        (
            one["network"],
            *(f"{times:.1f}" for times in one["faster"].values()),
            f"{one['difference']:.0e}",
        )
        for one in found
        if "failed" not in one
    ]
    header = ["network", "1/2", "1/4", "1/8", "1/16", "largest relative difference"]
    return [
        "Speed-up of `Incremental` over full passes, by the side of four rectangles in 448 x 512:",
        table(header, rows),
    ]


def _options(done: Measured) -> list[str]:
    ways = ("plain", "channels last", "compiled")
    found = [taken[0] for name, taken in done.items() if name.startswith("options")]
    rows = [
        (
            one["network"],
            *(f"{one[way]:.3f}" if way in one else one["cannot compile"] for way in ways),
        )
        for one in found
    ]
    return [
        "Seconds for a batch as it is, with `channels_last`, and with `torch.compile(model)`:",
        table(["network", *ways], rows),
    ]


PARTS = (_peers, _growth, _incremental, _shares, _options)
