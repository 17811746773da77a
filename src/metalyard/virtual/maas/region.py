"""An emulated MAAS 3.7 region: answers the API, drives BMCs over Redfish, tells machines what to boot."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from metalyard.virtual.maas import lifecycle
from metalyard.virtual.maas.core import Core, user_data
from metalyard.virtual.maas.model import RegionState, User
from metalyard.virtual.maas.oauth import OAuthGate
from metalyard.virtual.maas.power import RedfishDriver
from metalyard.virtual.maas.render import ROOT
from metalyard.virtual.maas.reply import ANSWER_HEADERS, BARE_TEXT, JSON, ApiError, Raw, Request, decode
from metalyard.virtual.maas.routes import Key, describe, match
from metalyard.virtual.maas.status import Status
from metalyard.virtual.machine import BootAction

ANONYMOUS = User("AnonymousUser", "", False)
ADMIN = "admin"
BOOTED = frozenset(
    {Status.COMMISSIONING, Status.DEPLOYING, Status.TESTING, Status.DISK_ERASING, Status.ENTERING_RESCUE_MODE}
)
"""Statuses in which a machine runs something for the region."""


class MaasRegion:
    """One region with one administrator, whose key is ``api_key`` (consumer:token:secret).

    ``cidr`` is the provisioning network, ``speed`` divides the waits of MAAS itself (not those of machines),
    ``state_path`` keeps everything over a restart, ``slots`` is how many calls are worked on at once (four workers
    of four). ``verify_field`` gives the Redfish driver a ``power_verify_ssl``, which 3.7 has not; the certificate
    is then held against ``bmc_ca``. Implements :class:`metalyard.virtual.machine.Provisioner`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        api_key: str,
        bmc_ca: Path | None = None,
        state_path: Path | None = None,
        speed: float = 1.0,
        *,
        cidr: str = "10.231.0.0/24",
        gateway: str | None = "10.231.0.1",
        slots: int = 16,
        verify_field: bool = False,
    ) -> None:
        if len(api_key.strip().split(":")) != 3:
            raise ValueError("the API key of the emulated region must be consumer:token:secret")
        self.host, self.port = host, port
        driver = RedfishDriver(bmc_ca, speed)
        self._core = Core(driver, state_path, cidr=cidr, gateway=gateway, speed=speed, verify_field=verify_field)
        self.add_user(ADMIN, api_key.strip(), admin=True)
        self._oauth = OAuthGate()
        self._slots = asyncio.Semaphore(slots)
        self._runner: web.AppRunner | None = None

    @property
    def state(self) -> RegionState:
        """What the region remembers, for tests and faults to look at and change."""
        return self._core.state

    @property
    def url(self) -> str:
        """What a plan gives as ``maas.url``."""
        return f"http://{self.host}:{self.port}/MAAS"

    def add_user(self, username: str, key: str, *, admin: bool) -> None:
        """A user, or a new key for one that is there."""
        self.state.users[:] = [user for user in self.state.users if user.username != username]
        self.state.users.append(User(username, f"{username}@example.invalid", admin, key))

    async def start(self) -> None:
        """Listen (port 0: a free one, then in ``port``) and take up what was pending when the region stopped."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        for machine in self.state.machines.values():
            if Status(machine.status) in BOOTED:
                machine.pending = "cycle"  # what the machine was booted for ended with the process that played it
            if machine.pending:
                self._core.spawn(lifecycle.power_later(self._core, machine))
        self._core.spawn(self._watch())
        self._core.save()

    async def stop(self) -> None:
        """Stop listening and end the background work."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self._core.stop()
        self._core.save()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(5)
            lifecycle.expire(self._core)

    # The machines' side (Provisioner)

    async def boot(self, mac: str) -> BootAction:
        """What a machine that booted from the network is to do, from its status."""
        machine = self.state.by_mac(mac)
        if machine is None:
            return BootAction("none")
        machine.boots += 1
        status = Status(machine.status)
        machine.power_state = "on"
        if status in (Status.COMMISSIONING, Status.TESTING, Status.DISK_ERASING):
            return BootAction("commission", hostname=machine.hostname)
        if status == Status.ENTERING_RESCUE_MODE:
            self._core.enter(machine, Status.RESCUE_MODE)
            self._core.save()
            return BootAction("none", hostname=machine.hostname)
        if status == Status.DEPLOYING and machine.netboot:
            return BootAction(
                "deploy",
                user_data=user_data(machine),
                hostname=machine.hostname,
                distro_series=machine.distro_series,
                addresses=self._core.addresses(machine),
                instance_id=f"{machine.system_id}-{machine.deployments}",
            )
        if status in (Status.DEPLOYING, Status.DEPLOYED, Status.EXITING_RESCUE_MODE):
            return BootAction("local", hostname=machine.hostname)
        return BootAction("none")

    async def commissioned(self, mac: str, hardware: dict[str, Any]) -> None:
        """The ephemeral system reported; ``hardware`` is the model's JSON form."""
        machine = self.state.by_mac(mac)
        if machine is not None:
            lifecycle.commissioned(self._core, machine, hardware)
            self._core.save()

    async def deployed(self, mac: str) -> None:
        """The installed system is up and its cloud-init through."""
        machine = self.state.by_mac(mac)
        if machine is not None:
            lifecycle.deployed(self._core, machine)
            self._core.save()

    async def failed(self, mac: str, reason: str) -> None:
        """What the machine was booted for did not work."""
        machine = self.state.by_mac(mac)
        if machine is not None:
            lifecycle.failed(self._core, machine, reason)
            self._core.save()

    # The API's side

    async def _answer(self, http: web.Request) -> web.Response:
        try:
            async with self._slots:
                body = await self._dispatch(http)
            if http.method != "GET":
                self._core.save()
        except ApiError as error:
            if http.method != "GET":
                self._core.save()
            headers = {"X-Frame-Options": "DENY", "Vary": "Cookie", **error.headers}
            return _response(error.body, error.status, error.kind, headers)
        if isinstance(body, Raw):
            return _response(body.body, body.status, body.kind, ANSWER_HEADERS)
        return _response(body, 200, None, ANSWER_HEADERS)

    async def _dispatch(self, http: web.Request) -> Any:
        path = urlsplit(http.raw_path).path
        if path.startswith("/MAAS/api/1.0/"):
            raise ApiError(410, "The 1.0 API is no longer available. Please use API version 2.0.", kind=BARE_TEXT)
        if path == f"{ROOT}/describe/":
            return Raw(_dump(describe(f"{http.scheme}://{http.host}")), kind="application/json")
        found = match(path)
        if found is None:
            raise ApiError(404, f"Unknown API endpoint: {path}.")
        resource, args = found
        user = self._oauth.user(http.headers.get("Authorization", ""), self.state.users)
        operations: dict[Key, Any] = resource.operations or resource.anonymous or {}
        if user is None:
            if resource.anonymous is None:
                raise ApiError(401, "Forbidden", kind=BARE_TEXT)
            operations = resource.anonymous
        elif http.method not in resource.methods:
            allow = ", ".join(resource.methods)
            raise ApiError(405, "", kind="text/html; charset=utf-8", headers={"Allow": allow})
        form = decode(await http.read(), http.headers.get("Content-Type", "")) if http.can_read_body else []
        query = parse_qsl(http.rel_url.raw_query_string, keep_blank_values=True)
        op = dict(query).get("op") or (dict(form).get("op") if http.method == "POST" else None)
        handler = operations.get((http.method, op))
        if handler is None:
            raise ApiError(400, f"Unrecognised signature: method={http.method} op={op}")
        if (wanted := dict(query).get("format")) not in (None, "json"):
            raise ApiError(400, f"Invalid output format specified '{wanted}'.", kind=BARE_TEXT)
        return await handler(self._core, Request(user or ANONYMOUS, args, query, form))


def _dump(value: Any) -> str:
    return web.json_response(value).text or ""


def _response(body: Any, status: int, kind: str | None, headers: dict[str, str]) -> web.Response:
    if isinstance(body, bytes):
        content = body
    elif isinstance(body, str) and kind is not None:
        content = body.encode()
    else:
        content = _dump(body).encode()
    response = web.Response(body=content, status=status, headers=headers)
    with contextlib.suppress(KeyError):
        del response.headers["Content-Type"]
    response.headers["Content-Type"] = kind or JSON
    return response
