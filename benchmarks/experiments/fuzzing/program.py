"""Networks as small programs: lines of code that can be run, dropped one by one, and printed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as f

if TYPE_CHECKING:
    from collections.abc import Iterator

INPUT = "t0"
NAMES: dict[str, Any] = {"torch": torch, "nn": nn, "f": f}


@dataclass(frozen=True)
class Line:
    """One operation: a tensor's name, the code that makes it, and the parts that the code uses.

    `code` is an expression, or statements with `{out}` for the name. `reads` are names of tensors,
    `{0}`, `{1}`, ... in the code. `part` is a statement of the constructor.
    """

    out: str
    code: str
    reads: tuple[str, ...]
    part: str = ""

    def statements(self) -> list[str]:
        """Return the lines of `forward`."""
        filled = self.code.format(*self.reads, out=self.out)
        found = filled.split("\n") if "{out}" in self.code else [f"{self.out} = {filled}"]
        return [line.strip() for line in found]


@dataclass(frozen=True)
class Program:
    """A network for inputs `(channels, *grid)`; `outputs` are expressions `(n, ...)` of tensors."""

    shape: tuple[int, ...]
    seed: int
    dtype: str
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]

    def source(self) -> str:
        """Return the class `Net` as code."""
        parts = [line.part for line in self.lines if line.part] or ["pass"]
        body = [text for line in self.lines for text in line.statements()]
        joined = f"torch.cat([{', '.join(self.outputs)}], 1)"
        return "\n".join(
            [
                "class Net(nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                *(f"        {part}" for part in parts),
                "",
                f"    def forward(self, {INPUT}):",
                *(f"        {text}" for text in body),
                f"        return {joined if len(self.outputs) > 1 else self.outputs[0]}",
            ]
        )

    def module(self) -> nn.Module:
        """Return the network, with weights and statistics that the seed decides."""
        names = dict(NAMES)
        exec(self.source(), names)  # noqa: S102, the code was written above
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            made = with_statistics(names["Net"]())
        return made.to(getattr(torch, self.dtype)).eval()

    def without(self, number: int) -> Program:
        """Return the program without a line; its readers read the line's first argument."""
        gone = self.lines[number]
        instead = gone.reads[0]

        def renamed(name: str) -> str:
            return instead if name == gone.out else name

        kept = (
            replace(line, reads=tuple(map(renamed, line.reads)))
            for line in self.lines
            if line is not gone
        )
        # Outputs name tensors in brackets, so that "t1" is no part of "t12".
        outputs = tuple(o.replace(f"({gone.out})", f"({instead})") for o in self.outputs)
        return replace(self, lines=tuple(kept), outputs=outputs)

    def smaller(self) -> Iterator[Program]:
        """Yield programs with one line or one output less."""
        for number in reversed(range(len(self.lines))):
            yield self.without(number)
        for number in range(len(self.outputs) if len(self.outputs) > 1 else 0):
            yield replace(self, outputs=self.outputs[:number] + self.outputs[number + 1 :])


def with_statistics(network: nn.Module) -> nn.Module:
    """Give every norm statistics that are not those of a new one."""
    for part in network.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.running_mean is not None:  # noqa: SLF001
            nn.init.normal_(part.running_mean, std=0.3)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.weight is not None:  # noqa: SLF001
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.3)
    return network
