"""Numbers in pages, taken from the committed results.

A page marks a number with the address of its value:

    F1 <!-- number: synthetic/1 cross/h-shap trees/f1 -->1.00<!-- /number -->

An address is a path into one of `SOURCES`. `as` gives the form: any format of Python, or one of
`FORMS`. A path with `*` or `[...]` stands for several values, of which `max of` or `min of` takes
one:

    max of boards/all/PartitionExplainer*/average_precision
    synthetic/1 cross/h-shap trees/seconds as ms

`benchmarks/run report` writes the numbers; a test fails where a page differs from the results.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.core import comparison, results
from benchmarks.core.folders import RESULTS
from benchmarks.experiments import equal
from benchmarks.reporting.claims import ZERO
from benchmarks.speed import own_cost, speed_goals, speed_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MARK = re.compile(r"<!-- number: (?P<address>[^>]+?) -->.*?<!-- /number -->", re.DOTALL)
ADDRESS = re.compile(r"(?:(?P<pick>max|min) of )?(?P<path>.+?)(?: as (?P<form>\S+))?")
WILD = re.compile(r"[*?[]")
WHOLE = {"evaluations", "images", "markers", "games"}

FORMS: dict[str, Callable[[float], str]] = {
    "ms": lambda seconds: f"{1e3 * seconds:.0f}",
    "percent": lambda share: f"{100 * share:.0f}",
    "GB": lambda megabytes: f"{megabytes / 1e3:.1f}",
}


class UnknownNumberError(LookupError):
    """A page asks for a number that the results do not have."""


def filled(text: str) -> str:
    """Return a page with every marked number as the results have it."""
    return MARK.sub(_marked, text)


def _marked(match: re.Match[str]) -> str:
    address = match["address"]
    return f"<!-- number: {address} -->{number(address)}<!-- /number -->"


def number(address: str) -> str:
    """Return the number at an address, as it is printed; fail if there is none, or several."""
    parsed = ADDRESS.fullmatch(address)
    if parsed is None:
        message = f"number address {address!r} is empty; write a path such as speed/forward/seconds"
        raise UnknownNumberError(message)
    path = parsed["path"].split("/")
    values = list(_values(path))
    if parsed["pick"] is None and len(values) > 1:
        message = f"number address {address!r} has {len(values)} values; begin it with max of"
        raise UnknownNumberError(message)
    value = min(values) if parsed["pick"] == "min" else max(values)
    form = parsed["form"] or (".0f" if path[-1] in WHOLE else ".2f")
    if form in FORMS:
        return FORMS[form](value)
    try:
        return format(value, form)
    except ValueError:
        message = f"no form {form!r} in {address!r}; there are .2f and its like, {', '.join(FORMS)}"
        raise UnknownNumberError(message) from None


def _values(path: list[str]) -> Iterator[float]:
    source, *keys = path
    if source not in SOURCES:
        message = f"no results are called {source!r}; there are {', '.join(SOURCES)}"
        raise UnknownNumberError(message)
    found = [SOURCES[source]()]
    for depth, key in enumerate(keys, start=1):
        parent = found
        found = [value for each in parent for value in _below(each, key)]
        if not found:
            known = sorted({name for each in parent if isinstance(each, dict) for name in each})
            message = f"{'/'.join(path[:depth])} has no {key!r}; it has {', '.join(known)}"
            raise UnknownNumberError(message)
    for value in found:
        if not isinstance(value, int | float):
            message = f"{'/'.join(path)} is not a number but {type(value).__name__}: go on below it"
            raise UnknownNumberError(message)
        yield value


def _below(values: Any, key: str) -> Iterator[Any]:
    for name, value in values.items() if isinstance(values, dict) else ():
        if fnmatchcase(name, key) if WILD.search(key) else name == key:
            yield _middle(value)


def _middle(value: Any) -> Any:
    """Return the mean or median of a value that is stored with its interval or range."""
    if isinstance(value, list) and len(value) == 3:
        return value[0]
    return value["median"] if isinstance(value, dict) and "median" in value else value


@cache
def _task(name: str) -> Mapping[str, Any]:
    """Return the measures of a task by group and method, with two that compare seconds.

    Methods whose seconds were not measured do not have these two.
    """
    groups = results.read_summary(name)["groups"]
    for methods in groups.values():
        timed = {method: entry for method, entry in methods.items() if entry["seconds"]}
        for entry in timed.values():
            seconds = entry["seconds"][0]
            entry["share_in_model"] = entry["seconds_in_model"][0] / seconds
            if ZERO[0] in timed:
                entry["times_quadtree"] = seconds / timed[ZERO[0]]["seconds"][0]
    return groups


@cache
def _speed() -> Mapping[str, Any]:
    """Return the medians of the speed table, and the comparison for each number of findings."""
    done = json.loads(speed_table.RESULTS.read_text())["measured"]
    medians = {name: speed_goals.medians(taken) for name, taken in done.items()}
    compared = {f"ResNet-18, k = {k}": speed_goals.comparison(done, k) for k in (1, 10)}
    return medians | compared


@cache
def _own_cost() -> Mapping[str, Any]:
    """Return the summary of own cost by case and method."""
    cases: dict[str, dict[str, Any]] = {}
    for row in json.loads((own_cost.FOLDER / "own_cost.json").read_text())["summary"]:
        cases.setdefault(row["case"], {})[row["name"]] = row
    return cases


@cache
def _experiment(name: str, *keys: str) -> Mapping[str, Any]:
    """Return the rows of an experiment, nested by these columns."""
    nested: dict[str, Any] = {}
    for row in json.loads((RESULTS / name / "summary.json").read_text())["rows"]:
        *outer, last = (row[key] for key in keys)
        within = nested
        for key in outer:
            within = within.setdefault(key, {})
        within[last] = row
    return nested


@cache
def _equal() -> Mapping[str, Any]:
    """Return the means of methods at equal evaluations, by set and method."""
    return {name: _means(rows) for name, rows in equal.stored()["rows"].items()}


def _means(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        method: {
            "images": len(own),
            "evaluations": comparison.evaluations(own),
            **{name: fmean(row[name] for row in own.values()) for name in comparison.MEASURES},
        }
        for method, own in comparison.by_method(rows).items()
    }


@cache
def _networks() -> Mapping[str, Any]:
    """Return the records of the trainings, by the name of the network."""
    paths = sorted(RESULTS.glob("train_*.json"))
    return {path.stem.removeprefix("train_"): json.loads(path.read_text()) for path in paths}


@cache
def _floor() -> Mapping[str, Any]:
    """Return the results of group testing: simulations by side and findings, sets by search."""
    results = json.loads((RESULTS / "floor" / "summary.json").read_text())["results"]
    nested: dict[str, Any] = {"simulated": {}}
    for row in results["simulated"]["rows"]:
        nested["simulated"].setdefault(str(row["side"]), {})[str(row["findings"])] = row
    for name in results.keys() - {"simulated"}:
        for row in results[name]["rows"]:
            group = nested.setdefault(row["group"], {}).setdefault(row["partition"], {})
            group[row["search"]] = {key: value for key, value in row.items() if key != "median"}
    return nested


@cache
def _document(name: str) -> Mapping[str, Any]:
    return json.loads((RESULTS / name / f"{name}.json").read_text())


@cache
def _compare_reference() -> Mapping[str, Any]:
    return json.loads((RESULTS / "compare_reference.json").read_text())


SOURCES: dict[str, Callable[[], Mapping[str, Any]]] = {
    "synthetic": lambda: _task("synthetic"),
    "malaria": lambda: _task("malaria"),
    "malaria-made": lambda: _task("malaria-made"),
    "platelets": lambda: _task("platelets"),
    "boards": lambda: _task("boards"),
    "trees": lambda: _experiment("trees", "variant", "group", "method"),
    "floor": _floor,
    "predictions": lambda: _experiment("predictions", "partition", "search"),
    "sizes": lambda: _experiment("sizes", "group", "partition"),
    "linkage": lambda: _experiment("linkage", "set", "linkage"),
    "equal": _equal,
    "gallery": lambda: _experiment("gallery", "image", "class"),
    "networks": _networks,
    "speed": _speed,
    "own_cost": _own_cost,
    "compare_reference": _compare_reference,
    "throughput": lambda: _document("throughput"),
    "kills": lambda: _document("kills"),
}
