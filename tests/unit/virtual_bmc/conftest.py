"""Emulated BMCs for the unit tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from bmc_bench import Bench


@pytest.fixture
async def make_bench() -> AsyncIterator[Callable[..., Bench]]:
    """Makes benches; what they still do ends with the test."""
    made: list[Bench] = []

    def make(**settings: Any) -> Bench:
        made.append(Bench(**settings))
        return made[-1]

    yield make
    for one in made:
        await one.bmc.stop_jobs()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A BMC whose factory password is replaced, over a machine that is off."""
    return make_bench()
