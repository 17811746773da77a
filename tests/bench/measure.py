"""What a benchmark returns, and how benchmarks are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure. ``against`` says in a few words what it was measured beside or is held to."""

    name: str
    value: float
    unit: str
    against: str


@dataclass(frozen=True)
class Benchmark:
    """A function that measures one or more figures in one run."""

    figures: tuple[str, ...]
    run: Callable[[], list[Figure]]


BENCHMARKS: list[Benchmark] = []


def benchmark(*figures: str) -> Callable[[Callable[[], list[Figure]]], Callable[[], list[Figure]]]:
    """Register a benchmark under the figures it gives."""

    def register(function: Callable[[], list[Figure]]) -> Callable[[], list[Figure]]:
        BENCHMARKS.append(Benchmark(figures, function))
        return function

    return register
