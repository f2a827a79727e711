"""The outcome of a check: a report, or one error that names every broken rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hshap._util.checks import shown
from hshap.errors import HshapError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class ConformanceError(HshapError, AssertionError):
    """A part breaks its contract; the message has a line for each broken rule.

    >>> import hshap
    >>> def left_half(image):
    ...     height, width = image.shape[1:]
    ...     return hshap.protocols.Box((0, 0), (height, width // 2))
    >>> hshap.testing.check_partition(left_half)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hshap.testing.report.ConformanceError: <function left_half at ...> breaks 2 of 9 rules:
    - the root holds every pixel: on an image of shape (1, 8, 8) it holds 32 of 64 pixels
    - under the OR rule every marked pixel is found: ...
    """


@dataclass(frozen=True)
class Report:
    """The rules that a part was seen to keep.

    >>> print(Report("Dyadic(min_size=2)", ("the root holds every pixel",)))
    Dyadic(min_size=2) passes 1 checks
    """

    subject: str
    passed: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.subject} passes {len(self.passed)} checks"


class BrokenRuleError(Exception):
    """One rule is broken; the message says on which input and how."""


def expect(kept: object, message: str) -> None:
    """Raise `BrokenRuleError` unless a rule is kept."""
    if not kept:
        raise BrokenRuleError(message)


def run_checks(subject: object, checks: Mapping[str, Callable[[], None]]) -> Report:
    """Run every check, and report all broken rules at once."""
    broken: list[str] = []
    for rule, check in checks.items():
        try:
            check()
        except BrokenRuleError as reason:
            broken.append(f"- {rule}: {reason}")
        except Exception as error:  # noqa: BLE001, the part may raise anything
            broken.append(f"- {rule}: {type(error).__name__}: {error}")
    name = shown(subject)
    if broken:
        message = "\n".join([f"{name} breaks {len(broken)} of {len(checks)} rules:", *broken])
        raise ConformanceError(message)
    return Report(name, tuple(checks))
