"""One poll for all machines that are waited for, not one for each node."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from metalyard.maas.client import MaasClient
from metalyard.maas.errors import KeyRefused, MaasError
from metalyard.maas.machine import Machine

PATIENCE = 300.0
"""Seconds a region may not answer before the waiting nodes are told."""


class Watch:
    """Reads the machines somebody waits for, together, at most a quarter of the time.

    A region with many machines takes seconds to list them: the pause grows with what the last reading took.
    """

    def __init__(self, client: MaasClient, pause: float = 2.0) -> None:
        self._client = client
        self._pause = pause
        self._waiting: dict[str, list[asyncio.Future[Machine | None]]] = {}
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watch:
        self._task = asyncio.create_task(self._poll())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def read(self, system_id: str) -> Machine | None:
        """The machine as the next reading finds it; None when MAAS has it no more."""
        future: asyncio.Future[Machine | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(system_id, []).append(future)
        self._wanted.set()
        return await future

    async def _poll(self) -> None:
        silent_since: float | None = None
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            started = time.monotonic()
            waiting, self._waiting = self._waiting, {}
            try:
                found = {machine.system_id: machine for machine in await self._client.machines(ids=sorted(waiting))}
            except MaasError as error:
                silent_since = silent_since or started
                if isinstance(error, KeyRefused) or time.monotonic() - silent_since > PATIENCE:
                    _settle(waiting, error)
                else:
                    for system_id, futures in waiting.items():
                        self._waiting.setdefault(system_id, []).extend(futures)
                    self._wanted.set()
            except Exception as error:  # a defect must not leave the nodes waiting for their deadline
                _settle(waiting, error)
            else:
                silent_since = None
                for system_id, futures in waiting.items():
                    for future in futures:
                        if not future.done():
                            future.set_result(found.get(system_id))
            await asyncio.sleep(max(self._pause, 3 * (time.monotonic() - started)))


def _settle(waiting: dict[str, list[asyncio.Future[Machine | None]]], error: BaseException) -> None:
    for futures in waiting.values():
        for future in futures:
            if not future.done():
                future.set_exception(error)
