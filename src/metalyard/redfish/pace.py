"""Time as the client knows it, so that every wait has a deadline and tests need not wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Found = TypeVar("Found")


class Pace:
    """The real clock. Tests give one that jumps."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def wait_for(
        self,
        probe: Callable[[], Awaitable[Found | None]],
        *,
        deadline: float,
        first: float = 1.0,
        longest: float = 10.0,
    ) -> Found | None:
        """Ask ``probe`` until it gives something, for at most ``deadline`` seconds; None when it never did.

        The pauses grow from ``first`` to ``longest`` seconds. ``longest`` stays below the 30 s after which some BMCs
        drop an idle session.
        """
        end = self.now() + deadline
        pause = first
        while True:
            found = await probe()
            if found is not None:
                return found
            left = end - self.now()
            if left <= 0:
                return None
            await self.sleep(min(pause, left))
            pause = min(pause * 1.5, longest)
