"""Damaged files of explanations: each is refused with a `FormatError`, or is a valid explanation.

Run `benchmarks/run fuzz explanations`. It changes bits, members, headers and arrays of saved
explanations at random, loads each file, and calls every method of the explanations that load.
Anything else than a `FormatError`, a warning, a map with NaN or a call of over 5 seconds is a
failure.
"""

from __future__ import annotations

import copy
import io
import json
import pickle
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hshap
from hshap.errors import ArgumentError, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    Members = dict[str, bytes]

FILES = 2000
SLOWEST = 5.0
GRID = (9, 12)
NASTY_JSON = [None, True, -1, 0, 1, 3, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan")]
NASTY_JSON += [float("inf"), "", "x", "auto", "DepthFirst", "\ud800", [], [[]], {}, [1, 2], [-1, 5]]
NASTY_NUMBERS = [0, 1, -1, 2, 17, 255, 2**31, 2**62, 2**63 - 1, -(2**63)]
NASTY_FLOATS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, -1.0, 0.0, 7.5]


@dataclass
class Outcome:
    """The number of files that were refused and that were loaded, and every failure."""

    refused: Counter[str] = field(default_factory=Counter)
    loaded: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def __str__(self) -> str:
        kinds = sorted({*self.refused, *self.loaded})
        lines = [f"{'mutation':24}{'refused':>9}{'loaded':>9}"]
        lines += [f"{kind:24}{self.refused[kind]:9}{self.loaded[kind]:9}" for kind in kinds]
        lines += [f"{'all':24}{self.refused.total():9}{self.loaded.total():9}"]
        lines += [f"slowest file: {self.slowest:.2f} s; failures: {len(self.failures)}"]
        return "\n".join(lines + self.failures[:20])


def fuzz_explanations(count: int, *, seed: int = 0) -> Outcome:
    """Load `count` damaged files."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        for number in range(count):
            # A generator for each file: a failure can be repeated by its number alone.
            rng = np.random.default_rng([seed, number])
            kind = list(MUTATIONS)[number % len(MUTATIONS)]
            warnings.simplefilter("ignore")
            content = MUTATIONS[kind](rng, originals()[rng.integers(len(originals()))])
            path = Path(folder) / "x.npz"
            path.write_bytes(content)
            warnings.simplefilter("error")
            _try(path, f"{kind}, seed {seed}, number {number}", kind, outcome)
    return outcome


def _try(path: Path, name: str, kind: str, outcome: Outcome) -> None:
    started = time.perf_counter()
    try:
        found = hshap.Explanation.load(path)
    except FormatError as error:
        outcome.refused[kind] += 1
        if "\n" in str(error):
            outcome.failures.append(f"{name}: the message has several lines")
    except BaseException as error:  # noqa: BLE001, any other class is a failure to report
        outcome.failures.append(f"{name}: load: {error!r:.200}")
    else:
        outcome.loaded[kind] += 1
        try:
            use(found, path)
        except Exception as error:  # noqa: BLE001, as above
            outcome.failures.append(f"{name}: use: {error!r:.200}")
    elapsed = time.perf_counter() - started
    outcome.slowest = max(outcome.slowest, elapsed)
    if elapsed > SLOWEST:
        outcome.failures.append(f"{name}: took {elapsed:.1f} s")


def use(found: hshap.Explanation, path: Path) -> None:
    """Call every method of an explanation, and fail if one does not answer as it should."""
    maps = [found.saliency(), found.coefficients(), found.attribution(), found.alone()]
    maps += [found.attribution(smooth=1.5), found.attribution(smooth="auto")]
    if not all(np.isfinite(heat).all() and heat.shape == found.grid for heat in maps):
        raise AssertionError("a map is not finite, or has another shape")
    if not np.isclose(maps[2].sum() + found.residual, found.score - found.baseline_score):
        raise AssertionError("attributions do not add up")
    found.errors(), found.dropped_at_most(), str(found.audit), repr(found)
    found.boxes(), found.boxes(merge=False), found._repr_html_(), found.complete, found.parts
    for options in ({"min_area": 6}, {"min_size": 3}, {"min_size": "auto"}, {}):
        # Refused if the run was coarser, or its search is not known here.
        with suppress(ArgumentError):
            found.at(**options).attribution()
            found.sizes()
    found.save(path)
    again = hshap.Explanation.load(path)
    if not (again.leaves == found.leaves and np.array_equal(again.alone(), found.alone())):
        raise AssertionError("the file that was saved again is another explanation")


@cache
def originals() -> list[bytes]:
    """Return the files of small explanations of every kind."""
    rng = np.random.default_rng(0)
    image = rng.random((1, *GRID))

    def model(batch: np.ndarray) -> np.ndarray:
        return np.stack([batch.max(axis=(1, 2, 3)), (batch**2).mean(axis=(1, 2, 3))], axis=1)

    def explain(partition: Any, **other: Any) -> hshap.Explanation:
        recipes = {"baseline": hshap.Constant(0.0), "partition": partition, **other}
        return hshap.Explainer(model, **recipes).explain(image, target=1)

    budget = hshap.DepthFirst(max_evaluations=60)
    found = [
        explain(hshap.Dyadic(3)),
        explain(hshap.Bisection("auto")),
        explain(hshap.Shifted(hshap.Bisection(3), (2, 5))),
        explain(hshap.Dyadic(2), search=budget),
        explain(hshap.Bisection(3), search=hshap.BreadthFirst(60)),
        explain(stripes),
        explain(hshap.Bisection(4), baseline=hshap.References(rng.random((3, 1, *GRID)))),
    ]
    found += [found[0].at(min_area=30), found[-1].at(min_area=200)]
    with tempfile.TemporaryDirectory() as folder:
        return [_saved(one, Path(folder) / "x.npz") for one in found]


def _saved(found: hshap.Explanation, path: Path) -> bytes:
    found.save(path)
    return path.read_bytes()


def stripes(image: np.ndarray) -> hshap.Pixels:
    """Split an image into every second pixel, again and again, and into boxes at last."""
    grid = image.shape[1:]

    def rule(region: hshap.Pixels) -> tuple[hshap.Region, ...]:
        if region.area < 12:
            return ()
        halves = [region.flat[i::2] for i in range(2)]
        return tuple(hshap.Pixels(half, grid, rule) for half in halves)

    def root_rule(region: hshap.Pixels) -> tuple[hshap.Region, ...]:
        below = region.flat[grid[1] :]
        return hshap.Box((0, 0), (1, grid[1])), hshap.Pixels(below, grid, rule)

    return hshap.Pixels(np.arange(np.prod(grid)), grid, root_rule)


def flip_bits(rng: np.random.Generator, content: bytes) -> bytes:
    data = bytearray(content)
    for place in rng.integers(len(data), size=rng.integers(1, 9)):
        data[place] ^= 1 << rng.integers(8)
    return bytes(data)


def cut(rng: np.random.Generator, content: bytes) -> bytes:
    return content[: rng.integers(len(content))]


def splice(rng: np.random.Generator, content: bytes) -> bytes:
    a, b = sorted(rng.integers(len(content), size=2))
    inserted = rng.bytes(rng.integers(64))
    return content[:a] + inserted + content[b if rng.integers(2) else a :]


def swap_members(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    one, other = rng.choice(list(members), 2, replace=False)
    members[one], members[other] = members[other], members[one]
    return _zipped(members)


def borrow_member(rng: np.random.Generator, content: bytes) -> bytes:
    members, others = _members(content), _members(originals()[rng.integers(len(originals()))])
    name = str(rng.choice(list(members)))
    return _zipped({**members, name: others[name]})


def change_list(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    name = str(rng.choice(list(members)))
    match rng.integers(5):
        case 0:
            del members[name]
        case 1:
            members[f"../{name}"] = members.pop(name)
        case 2:
            members["more.npy"] = members[name]
        case 3:
            members[f"nested/{name}"] = content
        case _:
            return _zipped(members, twice=name)
    return _zipped(members)


def compress_otherwise(rng: np.random.Generator, content: bytes) -> bytes:
    method = [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA][rng.integers(3)]
    made = _zipped(_members(content), method)
    return flip_bits(rng, made) if rng.integers(2) else made


def change_header(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    header = json.loads(_array(members["header.npy"]).tobytes())
    for _ in range(rng.integers(1, 3)):
        holder, key = _place(rng, header)
        if rng.integers(6) == 0:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(NASTY_JSON[rng.integers(len(NASTY_JSON))])
    return _with_header(members, json.dumps(header))


def nest_header(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    text = _array(members["header.npy"]).tobytes().decode()
    depth = int(rng.choice([10, 70, 900, 5000, 200_000]))
    opening, closing = [("[", "]"), ('{"partition": ', "}")][rng.integers(2)]
    nested = opening * depth + "1" + closing * depth
    return _with_header(members, text.replace('{"hshap"', f'{{"partition": {nested}, "hshap"'))


def spoil_header(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    text = bytearray(_array(members["header.npy"]).tobytes())
    text[rng.integers(len(text))] = rng.integers(256)
    return _zipped({**members, "header.npy": _npy(np.frombuffer(bytes(text), np.uint8))})


def change_array(rng: np.random.Generator, content: bytes) -> bytes:
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


def reshape_array(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    name = str(rng.choice(list(members)))
    array = _array(members[name])
    changed = [
        array[:-1],
        np.concatenate([array, array[-1:]]),
        array[None],
        array.reshape(-1)[:0],
        np.asfortranarray(array),
        array.astype(array.dtype.newbyteorder()),
        array.astype(np.float32),
        array.astype(np.int16),
        array.astype(object),
        array.astype("U1"),
        array[::-1],
    ][rng.integers(11)]
    return _zipped({**members, name: _npy(changed)})


def announce_much(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    name = str(rng.choice(list(members)))
    if rng.integers(3) == 0:
        return _with_sizes(_zipped(members), int(rng.choice([2**31, 2**32 - 2])))
    sides = rng.choice([2**31, 2**40, 10**14, 0, 5], size=rng.integers(1, 4))
    shape = f"({', '.join(map(str, sides))},)"
    text = f"{{'descr': '{_array(members[name]).dtype.str}', 'fortran_order': False, "
    text += f"'shape': {shape}, }}\n"
    made = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    return _zipped({**members, name: made + members[name][128:]})


def unpack_much(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    match rng.integers(3):
        case 0:  # a small file of many zeros
            name = str(rng.choice(list(members)))
            kind = _array(members[name]).dtype
            members[name] = _npy(np.zeros(2**22, kind))
        case 1:  # a large grid, which every map would have
            text = _array(members["header.npy"]).tobytes().decode()
            side = int(rng.choice([2**14, 2**20, 2**40]))
            grid = f'"grid": [{side}, {side}]'
            return _with_header(members, text.replace('"grid": [9, 12]', grid))
        case _:  # a few runs of very many pixels
            members["region_runs.npy"] = _npy(np.array([0, 2**40] * 5, np.int64))
    return _zipped(members)


class Harm:
    """An object whose pickle ends the program when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return sys.exit, ("a pickle was run",)


def run_code(rng: np.random.Generator, content: bytes) -> bytes:
    members = _members(content)
    name = str(rng.choice(list(members)))
    harm = pickle.dumps(Harm())
    array = io.BytesIO()
    np.lib.format.write_array(array, np.array([Harm()], object), allow_pickle=True)
    evil = [harm, array.getvalue(), b"\x93NUMPY\x01\x00\x20\x00__import__('sys').exit('run')"]
    if rng.integers(4) == 0:
        return harm
    return _zipped({**members, name: evil[rng.integers(3)]})


def scale_values(rng: np.random.Generator, content: bytes) -> bytes:
    """Multiply all numbers of the games: the file stays valid unless they grow beyond limits."""
    members = _members(content)
    factor = float(rng.choice([1e-320, 1e-150, -1.0, 0.0, 1e10, 1e290, 1e307]))
    for name in ("game_values.npy", "game_coefficients.npy"):
        members[name] = _npy(_array(members[name]) * factor)
    return _zipped(members)


MUTATIONS: dict[str, Callable[[np.random.Generator, bytes], bytes]] = {
    "none": lambda _, content: content,
    "bits flipped": flip_bits,
    "cut short": cut,
    "bytes spliced": splice,
    "members swapped": swap_members,
    "members of another file": borrow_member,
    "list of members": change_list,
    "compressed otherwise": compress_otherwise,
    "header values": change_header,
    "header nested": nest_header,
    "header bytes": spoil_header,
    "array values": change_array,
    "array values, again": change_array,
    "array shapes": reshape_array,
    "huge sizes announced": announce_much,
    "small files, much data": unpack_much,
    "code in the file": run_code,
    "all values scaled": scale_values,
}


def _members(content: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(members: Members, method: int = zipfile.ZIP_DEFLATED, twice: str = "") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        if twice:
            archive.writestr(twice, members[twice])
    return file.getvalue()


def _with_sizes(content: bytes, size: int) -> bytes:
    """Let every entry of the list of members announce another size."""
    data = bytearray(content)
    place = data.find(b"PK\x01\x02")
    while place >= 0:
        data[place + 24 : place + 28] = struct.pack("<I", size)
        place = data.find(b"PK\x01\x02", place + 4)
    return bytes(data)


def _with_header(members: Members, text: str) -> bytes:
    return _zipped({**members, "header.npy": _npy(np.frombuffer(text.encode(), np.uint8))})


def _array(member: bytes) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(member), allow_pickle=False)


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def _place(rng: np.random.Generator, document: Any) -> tuple[Any, Any]:
    """Return a random list or mapping inside of a document, and one of its keys."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        key = keys[rng.integers(len(keys))]
        inner = document[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.integers(3) == 0:
            return document, key
        document = inner
