"""One emulated BMC, asked without a network."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

from metalyard.virtual.bmc.config import BmcConfig
from metalyard.virtual.bmc.service import Answer, Bmc, Call
from metalyard.virtual.bmc.standalone import QUICK, SwitchedMachine, dgx_h100
from metalyard.virtual.hardware import Hardware

FACTORY = "factory-password"
PASSWORD = "a-better-one-1234"


class Bench:
    """A BMC, its machine and its hardware, and short ways to ask."""

    def __init__(self, **settings: Any) -> None:
        self.hardware: Hardware = settings.pop("hardware", None) or dgx_h100()
        self.machine: SwitchedMachine = settings.pop("machine", None) or SwitchedMachine("gpu-1")
        self.activated: list[tuple[str, str]] = []
        self.password = PASSWORD
        self.token: str | None = None
        self.bmc = Bmc(
            BmcConfig(
                node="gpu-1",
                address="127.0.0.1:0",
                hardware=lambda: self.hardware,
                machine=self.machine,
                factory_password=FACTORY,
                timings=QUICK,
                on_firmware=lambda component, version: self.activated.append((component, version)),
                **settings,
            )
        )
        account = self.bmc.state.kept.accounts[0]
        if account.change_required:
            account.password, account.change_required = PASSWORD, False
            self.bmc.state.save()

    async def ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        user: str | None = "admin",
        password: str | None = None,
        parts: dict[str, bytes] | None = None,
    ) -> Answer:
        """One request; ``user`` None asks without credentials."""
        given = dict(headers or {})
        if user is not None and "X-Auth-Token" not in given:
            text = f"{user}:{password if password is not None else self.password}"
            given["Authorization"] = "Basic " + base64.b64encode(text.encode()).decode()

        async def of_parts() -> dict[str, bytes]:
            return parts or {}

        call = Call(method, f"/redfish/v1{path}", query or {}, given, body, of_parts if parts is not None else None)
        return await self.bmc.answer(call)

    async def get(self, path: str) -> dict[str, Any]:
        """The body of a GET that has to succeed."""
        answer = await self.ask("GET", path)
        assert answer.status == 200, answer.body
        assert isinstance(answer.body, dict)
        return answer.body

    async def done(self, accepted: Answer) -> dict[str, Any]:
        """The task's last state, once it has ended."""
        assert accepted.status == 202, accepted.body
        assert isinstance(accepted.body, dict)
        path = accepted.body["@odata.id"].removeprefix("/redfish/v1")
        return await self.until(lambda: self.get(path), lambda task: "EndTime" in task)

    async def reset(self, kind: str) -> dict[str, Any]:
        """A reset, carried out: its task."""
        return await self.done(await self.ask("POST", "/Systems/DGX/Actions/ComputerSystem.Reset", {"ResetType": kind}))

    async def until(self, ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
        """Ask again until the answer is good; a test that waits too long fails."""
        for _ in range(1000):
            if good(found := await ask()):
                return found
            await asyncio.sleep(0.005)
        raise AssertionError(f"not within five seconds; last: {found}")


async def eventually(question: Callable[[], bool]) -> None:
    """Wait until it holds; a test that waits too long fails."""
    for _ in range(1000):
        if question():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within five seconds")


def said(answer: Answer) -> list[str]:
    """The names of the messages in an answer."""
    assert isinstance(answer.body, dict)
    holder = answer.body.get("error", answer.body)
    return [entry["MessageId"].rpartition(".")[2] for entry in holder.get("@Message.ExtendedInfo", [])]
