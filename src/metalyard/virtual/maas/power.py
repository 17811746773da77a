"""The power driver of MAAS for Redfish, call for call: what a BMC sees of a real rack controller.

On: GET Systems, GET the system, ForceOff if it is on, GET the system for its ETag, PATCH the boot override to Pxe
once, POST Reset On, then poll at 1, 2, 2, 4, 6, 8, 12 s. MAAS does not verify the BMC's certificate; with
``power_verify_ssl=y`` (a field of later regions, see ``MaasRegion``) this one does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import aiohttp

WAITS = (1, 2, 2, 4, 6, 8, 12)
"""Seconds between a change and each look at whether it came about; [S] and seen in the BMC's log."""

Change = Literal["on", "off", "soft-off"]


class PowerActionError(Exception):
    """The BMC answered, and not with success; MAAS's own words."""


class PowerConnError(Exception):
    """The BMC did not answer, or refused the credentials."""


class RedfishDriver:
    """Speaks to one BMC at a time for any machine; ``speed`` divides the waits, not the request time-outs."""

    def __init__(self, bmc_ca: Path | None = None, speed: float = 1.0, timeout: float = 40.0) -> None:
        self._ca = bmc_ca
        self._speed = max(speed, 0.001)
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def query(self, parameters: dict[str, str]) -> str:
        """The power state, ``on`` or ``off``."""
        system = await self._system(parameters)
        document, _ = await self._call("GET", system, parameters)
        return str(document.get("PowerState", "")).lower()

    async def change(
        self, parameters: dict[str, str], change: Change, booted: Callable[[], bool] = lambda: False
    ) -> str:
        """Bring the machine to a power state, trying again as MAAS does; the state it ended in.

        ``booted`` says that the machine came up meanwhile: a virtual one may have finished and gone off again
        before the first look, which a real one never does.
        """
        wanted = "on" if change == "on" else "off"
        problem: Exception | None = None
        for wait in WAITS:
            problem = None
            try:
                if change == "on":
                    await self._on(parameters)
                else:
                    await self._off(parameters, soft=change == "soft-off")
            except PowerActionError as error:
                problem = error
            await asyncio.sleep(wait / self._speed)
            if problem is None:
                seen = await self.query(parameters)
                if seen == wanted or booted():
                    return seen
        raise problem or PowerActionError(f"Redfish request failed: the system did not reach power state '{wanted}'.")

    async def _on(self, parameters: dict[str, str]) -> None:
        system = await self._system(parameters)
        if await self.query(parameters) == "on":
            await self._reset(system, parameters, "ForceOff")
            await self._until_off(system, parameters)
        etag = await self._override(system, parameters)
        await self._reset(system, parameters, "On", etag)

    async def _off(self, parameters: dict[str, str], *, soft: bool) -> None:
        system = await self._system(parameters)
        if await self.query(parameters) != "off":
            await self._reset(system, parameters, "GracefulShutdown" if soft else "ForceOff")
            await self._until_off(system, parameters)
        await self._override(system, parameters)

    async def _until_off(self, system: str, parameters: dict[str, str]) -> None:
        for wait in WAITS:
            document, _ = await self._call("GET", system, parameters)
            if str(document.get("PowerState", "")).lower() == "off":
                return
            await asyncio.sleep(wait / self._speed)

    async def _override(self, system: str, parameters: dict[str, str]) -> str | None:
        document, headers = await self._call("GET", system, parameters)
        etag = document.get("@odata.etag") or headers.get("ETag")
        boot = {"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}
        await self._call("PATCH", system, parameters, boot, etag)
        return etag

    async def _reset(self, system: str, parameters: dict[str, str], kind: str, etag: str | None = None) -> None:
        # The real driver keeps the If-Match of its PATCH in the headers it sends with the reset that follows.
        path = f"{system}/Actions/ComputerSystem.Reset"
        await self._call("POST", path, parameters, {"ResetType": kind}, etag)

    async def _system(self, parameters: dict[str, str]) -> str:
        node_id = parameters.get("node_id")
        if not node_id:
            systems, _ = await self._call("GET", "redfish/v1/Systems", parameters)
            members = systems.get("Members") or []
            if not members:
                raise PowerActionError("Redfish request failed: no member in Systems.")
            node_id = str(members[0].get("@odata.id", "")).rstrip("/").rsplit("/", 1)[-1]
        return f"redfish/v1/Systems/{node_id}"

    async def _call(
        self,
        method: str,
        path: str,
        parameters: dict[str, str],
        body: dict[str, Any] | None = None,
        etag: str | None = None,
    ) -> tuple[dict[str, Any], dict[str, str]]:
        address = parameters.get("power_address", "")
        base = address if "http" in address else f"https://{address}"
        url = f"{base.rstrip('/')}/{path}"
        login = f"{parameters.get('power_user', '')}:{parameters.get('power_pass', '')}"
        headers = {
            "User-Agent": "MAAS",
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(login.encode()).decode(),
            "Content-Type": "application/json; charset=utf-8",
        }
        if etag:
            headers["If-Match"] = etag
        options: dict[str, Any] = {"headers": headers, "json": body} if body is not None else {"headers": headers}
        try:
            for attempt in (url, url + "/"):
                async with self._open().request(method, attempt, ssl=self._tls(parameters), **options) as answer:
                    if answer.status == 404 and attempt == url:
                        continue  # some BMCs want the trailing slash
                    if answer.status in (401, 403):
                        raise PowerConnError(f"Redfish request failed with response status code: {answer.status}.")
                    if answer.status >= 400:
                        raise PowerActionError(f"Redfish request failed with response status code: {answer.status}.")
                    text = await answer.text()
                    return _document(text), dict(answer.headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PowerConnError(f"{type(error).__name__} from the BMC at {address}") from error
        raise PowerActionError("Redfish request failed with response status code: 404.")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._timeout), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _tls(self, parameters: dict[str, str]) -> ssl.SSLContext | bool:
        if parameters.get("power_verify_ssl") != "y":
            return False
        return ssl.create_default_context(cafile=str(self._ca) if self._ca else None)


def _document(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PowerActionError(f"Redfish request failed from a JSON parse error: {error}.") from error
    return document if isinstance(document, dict) else {}
