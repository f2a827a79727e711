"""Repeating: one image explained again with other seeds, baselines and shifts."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, cast

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.partitions.grids import Shifted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import DataclassInstance

    from hshap.baselines.protocol import Baseline
    from hshap.explainer import Explainer


def variants(
    explainer: Explainer,
    seeds: Iterable[int],
    baselines: Iterable[Baseline],
    shifts: Iterable[int | Sequence[int]],
) -> list[Explainer]:
    """Return the explainer, and a copy for each seed, baseline and shift."""
    made = [explainer]
    for seed in seeds:
        wanted = checks.integer("seeds", seed, minimum=0)
        parts = {
            name: _seeded(part, wanted)
            for name in ("baseline", "partition", "search")
            if _has_seed(part := getattr(explainer, name))
        }
        if not parts:
            message = (
                f"seeds has {seed}, but no part of {checks.shown(explainer)} has a seed; pass "
                "search=BestFirst() or a random baseline such as References, or baselines or shifts"
            )
            raise ArgumentError(message)
        made.append(replace(explainer, **parts))
    made += [replace(explainer, baseline=baseline) for baseline in baselines]
    for shift in shifts:
        if explainer.partition is None:
            message = (
                f"shifts has {shift}, but the explainer chooses its partition for each image; "
                "give it one, such as Bisection(min_size=8)"
            )
            raise ArgumentError(message)
        made.append(replace(explainer, partition=Shifted(explainer.partition, shift)))
    return made


def _has_seed(part: object) -> bool:
    if not is_dataclass(part) or isinstance(part, type):
        return False
    return any(field.name == "seed" for field in fields(part))


def _seeded(part: object, seed: int) -> object:
    return replace(cast("DataclassInstance", part), seed=seed)
