"""A goal, the outcome that was measured, and the verdict in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A goal of a case; `met` is None where it was not measured, or not well enough to tell."""

    case: str
    goal: str
    reached: str
    met: bool | None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "not met", None: "open"}[self.met]
