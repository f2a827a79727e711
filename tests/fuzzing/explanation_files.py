"""Damaged files of explanations: bits, members, headers and arrays are changed at random."""

from __future__ import annotations

import copy
import io
import json
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

import hshap
from fuzzing import damaged
from hshap.errors import ArgumentError, FormatError

GRID, SLOWEST = (9, 12), 5.0
NASTY_JSON = [None, True, -1, 0, 1, 3, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan")]
NASTY_JSON += [float("inf"), "", "x", "auto", "DepthFirst", "\ud800", [], [[]], {}, [1, 2], [-1, 5]]
NASTY_NUMBERS = [0, 1, -1, 2, 17, 255, 2**31, 2**62, 2**63 - 1, -(2**63)]
NASTY_FLOATS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, -1.0, 0.0, 7.5]


def use(found, path):
    """Call every method of an explanation, and fail if one does not answer as it should."""
    maps = [found.saliency(), found.coefficients(), found.attribution()]
    maps += [found.attribution(smooth=1.5), found.attribution(smooth="auto")]
    if not all(np.isfinite(heat).all() and heat.shape == found.grid for heat in maps):
        raise AssertionError("a map is not finite, or has another shape")
    if not np.isclose(maps[2].sum() + found.residual, found.score - found.baseline_score):
        raise AssertionError("attributions do not add up")
    str(found.audit), repr(found)
    found.boxes(), found.boxes(merge=False), found._repr_html_(), found.complete, found.parts
    for options in ({"min_area": 6}, {"min_size": 3}, {"min_size": "auto"}, {}):
        # Refused if the run was coarser, or its search is not known here.
        with suppress(ArgumentError):
            found.at(**options).attribution()
    found.save(path)
    again = hshap.Explanation.load(path)
    if not (again.leaves == found.leaves and np.array_equal(again.coefficients(), maps[1])):
        raise AssertionError("the file that was saved again is another explanation")


def fuzz_explanations(count, *, seed=0):
    """Try `count` damaged files: return the kinds refused and loaded, and every failure."""
    refused, loaded, failures = Counter(), Counter(), []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        for number in range(count):
            # A generator for each file: a failure can be repeated by its number alone.
            rng = np.random.default_rng([seed, number])
            kind = list(MUTATIONS)[number % len(MUTATIONS)]
            warnings.simplefilter("ignore")
            content = MUTATIONS[kind](rng, originals()[rng.integers(len(originals()))])
            path, begun = Path(folder) / "x.npz", time.perf_counter()
            path.write_bytes(content)
            warnings.simplefilter("error")
            try:
                use(hshap.Explanation.load(path), path)
                loaded[kind] += 1
            except FormatError as error:
                refused[kind] += 1
                if "\n" in str(error):
                    failures.append(f"{kind}, seed {seed}, number {number}: several lines")
            except BaseException as error:  # noqa: BLE001, any other class is a failure to report
                failures.append(f"{kind}, seed {seed}, number {number}: {error!r:.200}")
            if time.perf_counter() - begun > SLOWEST:
                failures.append(f"{kind}, seed {seed}, number {number}: over {SLOWEST} s")
    return refused, loaded, failures


@cache
def originals():
    """Return the files of small explanations of every kind."""
    rng = np.random.default_rng(0)
    image = rng.random((1, *GRID))

    def model(batch):
        return np.stack([batch.max(axis=(1, 2, 3)), (batch**2).mean(axis=(1, 2, 3))], axis=1)

    def explain(partition, baseline=None, **other):
        baseline = baseline or hshap.Constant(0.0)
        return hshap.Explainer(model, baseline, partition, **other).explain(image, target=1)

    drawn = hshap.References(rng.random((3, 1, *GRID)))
    found = [
        explain(hshap.Dyadic(3)),
        explain(hshap.Shifted(hshap.Bisection("auto"), (2, 5))),
        explain(hshap.Dyadic(2), search=hshap.DepthFirst(max_evaluations=60)),
        explain(hshap.Bisection(3), search=hshap.BreadthFirst(60)),
        explain(stripes),
        explain(hshap.Bisection(4), drawn),
    ]
    found += [found[0].at(min_area=30), found[-1].at(min_area=200)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        return [(one.save(path), path.read_bytes())[1] for one in found]


def stripes(image):
    """Split an image into every second pixel, again and again, and into boxes at last."""
    grid = image.shape[1:]

    def rule(region):
        if region.area < 12:
            return ()
        halves = [region.flat[i::2] for i in range(2)]
        return tuple(hshap.protocols.Pixels(half, grid, rule) for half in halves)

    def root_rule(region):
        below = region.flat[grid[1] :]
        return hshap.protocols.Box((0, 0), (1, grid[1])), hshap.protocols.Pixels(below, grid, rule)

    return hshap.protocols.Pixels(np.arange(np.prod(grid)), grid, root_rule)


def exchange_member(rng, content):
    """Put a member into the place of another one, or take it from another file."""
    members = _members(content)
    one, other = rng.choice(list(members), 2, replace=False)
    source = members if rng.integers(2) else _members(originals()[rng.integers(len(originals()))])
    return _zipped({**members, one: source[other if source is members else one]})


def change_header(rng, content):
    members = _members(content)
    header = json.loads(_array(members["header.npy"]).tobytes())
    for _ in range(rng.integers(1, 3)):
        holder, key = _place(rng, header)
        if rng.integers(6) == 0:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(NASTY_JSON[rng.integers(len(NASTY_JSON))])
    return _with_header(members, json.dumps(header))


def nest_header(rng, content):
    members = _members(content)
    text = _array(members["header.npy"]).tobytes().decode()
    depth = int(rng.choice([10, 70, 900, 5000, 200_000]))
    opening, closing = [("[", "]"), ('{"partition": ', "}")][rng.integers(2)]
    nested = opening * depth + "1" + closing * depth
    return _with_header(members, text.replace('{"hshap"', f'{{"partition": {nested}, "hshap"'))


def spoil_header(rng, content):
    members = _members(content)
    text = bytearray(_array(members["header.npy"]).tobytes())
    text[rng.integers(len(text))] = rng.integers(256)
    return _zipped({**members, "header.npy": _npy(np.frombuffer(bytes(text), np.uint8))})


def change_array(rng, content):
    members = _members(content)
    for _ in range(rng.integers(1, 3)):
        name = str(rng.choice([name for name in members if name != "header.npy"]))
        array = _array(members[name]).copy()
        if array.size:
            place = rng.integers(array.size)
            nasty = NASTY_FLOATS if array.dtype.kind == "f" else NASTY_NUMBERS
            value = nasty[rng.integers(len(nasty))]
            near = array.flat[place] + rng.choice([-1, 1])
            array.flat[place] = near if rng.integers(2) else np.array(value).astype(array.dtype)
        members[name] = _npy(array)
    return _zipped(members)


def reshape_array(rng, content):
    members = _members(content)
    name = str(rng.choice(list(members)))
    array = _array(members[name])
    ways = [array[:-1], array[::-1], array[None], np.concatenate([array, array[-1:]])]
    ways += [array.reshape(-1)[:0], np.asfortranarray(array)]
    kinds = [array.dtype.newbyteorder(), np.float32, np.int16, object, "U1"]
    ways += [array.astype(kind) for kind in kinds]
    changed = ways[rng.integers(len(ways))]
    return _zipped({**members, name: _npy(changed)})


def scale_values(rng, content):
    """Multiply all numbers of the games: the file stays valid unless they grow beyond limits."""
    members = _members(content)
    factor = float(rng.choice([1e-320, 1e-150, -1.0, 0.0, 1e10, 1e290, 1e307]))
    for name in ("game_values.npy", "game_coefficients.npy"):
        members[name] = _npy(_array(members[name]) * factor)
    return _zipped(members)


MUTATIONS = {
    "none": lambda _, content: content,
    "bytes": damaged,
    "members": exchange_member,
    "header values": change_header,
    "header nested": nest_header,
    "header bytes": spoil_header,
    "array values": change_array,
    "array values, again": change_array,
    "array shapes": reshape_array,
    "all values scaled": scale_values,
}


def _members(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _with_header(members, text):
    return _zipped({**members, "header.npy": _npy(np.frombuffer(text.encode(), np.uint8))})


def _array(member):
    return np.lib.format.read_array(io.BytesIO(member), allow_pickle=False)


def _npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def _place(rng, document):
    """Return a random list or mapping inside of a document, and one of its keys."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        key = keys[rng.integers(len(keys))]
        inner = document[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.integers(3) == 0:
            return document, key
        document = inner
