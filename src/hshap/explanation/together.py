"""Together: trees and audits of many explanations at once, before rows are made of them.

A call of NumPy takes as long for the games of sixteen images as for those of one. Every number is
that of one game alone, so results are the same bit for bit.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from hshap.explanation.audit import audit
from hshap.explanation.gaps import all_gaps
from hshap.games.tree import parts, ratios, sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.explanation.explanation import Explanation

MOST_VALUES = 2**18
"""Scores of games that are looked at together: of more, copies would fill memory."""


def audit_together(explanations: Sequence[Explanation]) -> None:
    """Fill in `parts` and `audit` of explanations, as each one would compute them when asked.

    Nothing is filled in where the games are too large, or where those of one explanation raise an
    error: then each computes its own, and only that one fails.
    """
    games = [game for one in explanations for game in one.games]
    if sum([len(game.values) for game in games]) > MOST_VALUES:
        return
    try:
        counts = [count for one in explanations for count in sources(one.games)]
        divided, gaps = ratios(games, counts), all_gaps(games)
    except Exception:  # noqa: BLE001, of games that a caller made; asked again, they tell
        return
    ends = accumulate((len(one.games) for one in explanations), initial=0)
    for one, (begin, end) in zip(explanations, pairwise(ends), strict=True):
        own = (gaps[0][begin:end], gaps[1][begin:end], gaps[2][begin:end])
        try:
            tree = parts(one.games, draws=one.draws, shared=(counts[begin:end], divided[begin:end]))
            found = sum(tree[leaf].share for leaf in one.leaves)
            made = audit(
                one.games,
                one.leaves,
                () if one.complete else one.unfinished,
                found,
                one.provenance,
                certificate=one.certificate,
                filled=one.filled,
                shared=own,
            )
        except Exception:  # noqa: BLE001, S112, the explanation raises it again when it is asked
            continue
        vars(one).update(parts=tree, audit=made)  # where `cached_property` keeps them
