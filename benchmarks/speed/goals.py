"""Turn the measurements into verdicts on the goals, and into a page to read."""

from __future__ import annotations

from statistics import median
from typing import Any

Measured = dict[str, list[dict[str, Any]]]

REFERENCE = "h-shap 0.1.6 tau=0"
CLOSE = 1e-5


def judged(done: Measured) -> list[dict[str, Any]]:
    """Return every goal with what was reached, and whether that is enough."""
    return [
        *(_against_reference(done, markers, goal) for markers, goal in ((10, 30.0), (1, 12.0))),
        _large(done),
        _crosses(done),
        *_together(done),
        _floor(done),
        _agreement(done),
        _short(done),
        _tree(done),
    ]


def _middle(done: Measured, name: str, key: str = "seconds") -> float:
    return median(each[key] for each in done[name])


def _goal(case: str, goal: str, reached: str, *, met: bool) -> dict[str, Any]:
    return {"case": case, "goal": goal, "reached": reached, "met": met}


def reference_seconds(done: Measured, markers: int, game: str = "game") -> float:
    """Return what the authors' package takes: its own time, and its games' forward passes.

    A game in a process of its own pays for fresh memory; in a whole run the later ones do not. So
    games count as much less as they did where a whole run was timed.
    """
    own = done[f"reference's own, k = {markers}"]
    seconds = own[0]["games"] * _middle(done, game) * _warm(done)
    return _middle(done, f"reference's own, k = {markers}") + seconds


def _warm(done: Measured) -> float:
    """Return the share of a game's first time that it takes in a whole run."""
    own = done["reference's own, k = 1"]
    spent = _middle(done, "reference, k = 1") - _middle(done, "reference's own, k = 1")
    return min(1.0, spent / own[0]["games"] / _middle(done, "game"))


def _against_reference(done: Measured, markers: int, goal: float) -> dict[str, Any]:
    name = f"k = {markers}"
    ways = {"": f"ours, {name}", " (channels last)": f"ours, channels last, {name}"}
    best = min(ways, key=lambda way: _middle(done, ways[way]))
    seconds = _middle(done, ways[best])
    theirs = reference_seconds(done, markers)
    fairer = reference_seconds(done, markers, "game, channels last")
    peak = max(each["peak_gb"] for each in done[ways[best]])
    same = {e["leaves"] for e in done[ways[best]] + done[f"reference's own, {name}"]}
    games = done[f"reference's own, {name}"][0]["games"]
    reached = (
        f"{theirs / seconds:.1f} times{best}: {games} games, {theirs:.0f} s, against "
        f"{seconds:.1f} s ({seconds / _middle(done, 'forward'):.1f} forward passes); "
        f"{fairer / seconds:.1f} times if the reference ran channels last too; peak {peak:.2f} GB; "
        f"{'the same leaves' if len(same) == 1 else 'OTHER LEAVES'}"
    )
    met = theirs / seconds >= goal and peak <= 3.0 and len(same) == 1
    return _goal(
        f"ResNet-18, 1200 x 1600, s = 80, {name}",
        f"at least {goal:.0f} times faster, at most 3 GB",
        reached,
        met=met,
    )


def _large(done: Measured) -> dict[str, Any]:
    one = done["ours, 4096"][0]
    case, goal = "ResNet-18, 4096 x 4096, k = 10", "finishes, under 8 GB"
    if "failed" in one:
        return _goal(case, goal, one["failed"], met=False)
    reached = f"{one['seconds']:.0f} s, {one['evaluations']} evaluations, {one['peak_gb']:.2f} GB"
    return _goal(case, goal, reached, met=one["peak_gb"] < 8)


def _crosses(done: Measured) -> dict[str, Any]:
    turns = [each["methods"] for each in done["crosses"]]
    theirs = turns[0][REFERENCE]
    found: list[str] = []
    met = False
    for name in ("h-shap bisection", "h-shap superpixels"):
        ratio = median(turn[REFERENCE]["seconds"] / turn[name]["seconds"] for turn in turns)
        f1 = turns[0][name]["f1_mean"]
        found.append(f"{name} {ratio:.1f} times, F1 {f1:.2f}")
        met = met or (ratio >= 8 and f1 >= theirs["f1_mean"])
    reached = f"{'; '.join(found)}; reference F1 {theirs['f1_mean']:.2f}"
    goal = "at least 8 times faster, F1 not lower"
    return _goal("synthetic ConvNet, 100 x 120, s = 4, 6 crosses", goal, reached, met=met)


def _together(done: Measured) -> list[dict[str, Any]]:
    ratio, share = _middle(done, "together", "ratio"), _middle(done, "together", "share")
    # One by one is near the limit already: a search asks for many games at a time.
    most = median(each["one_by_one"] / each["bare"] for each in done["together"])
    return [
        _goal(
            "100 synthetic images in one call",
            "at least 1.7 times faster than one by one",
            f"{ratio:.2f} times; bare forward passes alone would be {most:.2f} times as fast",
            met=ratio >= 1.7,
        ),
        _goal(
            "the same, against as many bare forward passes",
            "over 90 % of their throughput",
            f"{share:.0%}",
            met=share > 0.9,
        ),
    ]


def _floor(done: Measured) -> dict[str, Any]:
    rows = [
        row
        for name, taken in done.items()
        if name.startswith("findings")
        for row in taken[0]["rows"]
        if row["findings"] <= 30
    ]
    worst = {
        kind: max(row["worst"] for row in rows if row["partition"] == kind)
        for kind in ("Bisection", "Dyadic")
    }
    return _goal(
        "evaluations, k = 1 to 30, 64 x 64 to 1024 x 1024",
        "at most 2.2 times log2(C(n, k))",
        f"at most {worst['Bisection']:.2f} (bisection), {worst['Dyadic']:.2f} (quadtree)",
        met=worst["Bisection"] <= 2.2,
    )


def _agreement(done: Measured) -> dict[str, Any]:
    found = {
        name.partition(", ")[2]: taken[0].get("difference", 1.0)
        for name, taken in done.items()
        if name.startswith("agreement")
    }
    reached = ", ".join(f"{name} {difference:.0e}" for name, difference in found.items())
    met = all(difference <= CLOSE for difference in found.values())
    return _goal("networks of known kinds", "agree with the whole to 1e-5", reached, met=met)


def _short(done: Measured) -> dict[str, Any]:
    found = [taken[0] for name, taken in done.items() if name.startswith("short, ")]
    worst = max((one["ratio"] for one in found), default=float("inf"))
    told = "; ".join(
        f"{one['network']} " + ", ".join(f"{ratio:.2f}" for ratio in one["ratios"].values())
        for one in found
    )
    return _goal(
        "explanations of 8, 40 and 200 evaluations, 100 x 120 to 224 x 224",
        "never longer than 1.1 times whole inputs",
        told or "not measured",
        met=worst <= 1.1,
    )


def _tree(done: Measured) -> dict[str, Any]:
    tree, forward = _middle(done, "tree"), _middle(done, "forward")
    return _goal(
        "superpixel tree of noise, 1200 x 1600",
        "no longer than three forward passes of ResNet-18",
        f"{tree:.1f} s against 3 x {forward:.2f} s",
        met=tree <= 3 * forward,
    )


def markdown(content: dict[str, Any]) -> str:
    """Return the page."""
    done: Measured = content["measured"]
    made = (
        f"Made by `benchmarks/run speed` on {content['date']}, commit {content['commit']}, two "
        "threads, medians of three runs in turns where it takes seconds. How each is measured "
        "stands in `table.py`. What is not measured again stays as it was: rows may be of commits "
        "before and after."
    )
    lines = [
        "# Speed",
        "",
        made,
        "",
        "| case | goal | reached | |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {g['case']} | {g['goal']} | {g['reached']} | {'met' if g['met'] else '**not met**'} |"
        for g in content["goals"]
    ]
    tables = (_peers, _growth, _layers, _options)
    lines += [line for each in tables for line in ("", *each(done))]
    lines += ["", "![](speed.png)", ""]
    return "\n".join(lines)


def _peers(done: Measured) -> list[str]:
    turns = [each["methods"] for each in done["crosses"]]
    images = done["crosses"][0]["images"]
    lines = [
        f"Synthetic images with 6 crosses, cells of 4 pixels, medians of {images}, one process:",
        "",
        "| method | evaluations | seconds | of the reference's time | F1 at 1e-6 |",
        "|---|---|---|---|---|",
    ]
    for name, one in turns[0].items():
        seconds = median(turn[name]["seconds"] for turn in turns)
        share = median(turn[name]["seconds"] / turn[REFERENCE]["seconds"] for turn in turns)
        spent, f1 = one["evaluations"], one["f1_mean"]
        lines.append(f"| {name} | {spent:.0f} | {seconds:.3f} | {share:.2f} | {f1:.2f} |")
    return lines


def _growth(done: Measured) -> list[str]:
    lines = [
        "Own time with an oracle that costs nothing, ten findings, bisection to 8 pixels:",
        "",
        "| side | evaluations | seconds | peak memory, GB |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one['side']} | {one['evaluations']} | {one['seconds']:.2f} | {one['peak_gb']:.2f} |"
        for one in (taken[0] for name, taken in done.items() if name.startswith("side, "))
    ]
    for name, key in (("by_size", "min_size"), ("by_classes", "classes"), ("by_images", "images")):
        lines += ["", f"| {key} | evaluations | seconds |", "|---|---|---|"]
        lines += [
            f"| {row[key]} | {row['evaluations']} | {row['seconds']:.3f} |"
            for row in done[name][0]["rows"]
        ]
    return lines


def _layers(done: Measured) -> list[str]:
    lines = [
        "Times as fast as the whole network, four rectangles of a part of the side at 448 x 512:",
        "",
        "| network | 1/2 | 1/4 | 1/8 | 1/16 | largest relative difference |",
        "|---|---|---|---|---|---|",
    ]
    for one in (taken[0] for name, taken in done.items() if name.startswith("agreement")):
        if "failed" not in one:
            parts = " | ".join(f"{times:.1f}" for times in one["faster"].values())
            lines.append(f"| {one['network']} | {parts} | {one['difference']:.0e} |")
    return lines


def _options(done: Measured) -> list[str]:
    ways = ("plain", "channels last", "compiled")
    lines = [
        "Seconds for a batch, as it is, with `channels_last`, and of `torch.compile(model)`:",
        "",
        f"| network | {' | '.join(ways)} |",
        "|---|---|---|---|",
    ]
    for one in (taken[0] for name, taken in done.items() if name.startswith("options")):
        cells = [f"{one[way]:.3f}" if way in one else one["cannot compile"] for way in ways]
        lines.append(f"| {one['network']} | {' | '.join(cells)} |")
    return lines
