"""The servers of a rack's emulated BMCs: one process, one address and certificate a BMC, HTTPS only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import BodyPartReader, web

from metalyard.virtual.bmc.config import BmcConfig
from metalyard.virtual.bmc.faults import BmcFault
from metalyard.virtual.bmc.messages import RedfishError, error_body, message
from metalyard.virtual.bmc.service import Answer, Bmc, Call
from metalyard.virtual.bmc.tls import server_context

log = logging.getLogger(__name__)
_parser_log = logging.getLogger(f"{__name__}.http")
# What aiohttp's parser makes of a broken request is the client's affair; our own failures go to ``log``.
_parser_log.setLevel(logging.CRITICAL)
JSON_LIMIT = 1024 * 1024
"""Longest JSON body, in bytes."""
HANG = 3600.0
"""Seconds after which even a hanging request is given up."""


class BmcServer:
    """One BMC on its address."""

    def __init__(self, config: BmcConfig, context: ssl.SSLContext) -> None:
        self.bmc = Bmc(config)
        self.config = config
        self._context = context
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self.port = config.port

    @property
    def url(self) -> str:
        """``https://host:port``, with the port that is really open."""
        return f"https://{self.config.host}:{self.port}"

    async def start(self) -> None:
        """Open the port; ``OSError`` when the address is taken."""
        app = web.Application(client_max_size=int(self.bmc.model.constants["image_limit"]))
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, logger=_parser_log, shutdown_timeout=0.5)
        await self._runner.setup()
        await self._open()
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Close the port and end what still runs."""
        self._stopping.set()
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        await self.bmc.stop_jobs()
        if self._runner is not None:
            await self._runner.cleanup()

    async def restart(self) -> None:
        """Go away and come back, as a BMC does when it is reset: sessions and tasks are lost."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
        self._drop_connections()
        await asyncio.sleep(self.config.timings.bmc_reset)
        self.bmc.come_back()
        await self._open()

    async def _open(self) -> None:
        if self._runner is None:
            raise RuntimeError(f"{self.config.node}: the emulated BMC is not set up")
        self._site = web.TCPSite(
            self._runner, self.config.host, self.port, ssl_context=self._context, reuse_address=True
        )
        await self._site.start()
        if self.port == 0:
            self.port = self._runner.addresses[0][1]

    async def _keep(self) -> None:
        while True:
            await self.bmc.away.wait()
            self.bmc.away.clear()
            try:
                await self.restart()
            except OSError:
                log.exception("%s: the emulated BMC can't come back", self.config.node)

    def _drop_connections(self) -> None:
        server = self._runner.server if self._runner is not None else None
        for connection in list(server.connections) if server is not None else []:
            if connection.transport is not None:
                connection.transport.abort()

    # -- one request --------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        faults = self.bmc.faults.take(request.method, request.path.rstrip("/") or "/")
        for fault in faults:
            early = await self._before(fault, request)
            if early is not None:
                return early
        answer = await self._answered(request, stale=any(fault.kind == "stale" for fault in faults))
        if answer.status == 202 and any(fault.kind == "lost_task" for fault in faults):
            self.bmc.lose_task(answer)
        response = self._response(request, answer)
        if any(fault.kind == "reset" for fault in faults):
            _reset(request)
        elif any(fault.kind == "truncate" for fault in faults) and isinstance(response.body, bytes):
            response.body = response.body[: len(response.body) // 2]
        return response

    async def _answered(self, request: web.Request, *, stale: bool) -> Answer:
        try:
            call = await self._call(request)
            call.stale = stale
            return await self.bmc.answer(call)
        except RedfishError as refused:
            return Answer(refused.status, error_body(refused.messages), refused.headers)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("%s: %s %s failed in the emulated BMC", self.config.node, request.method, request.path)
            return Answer(500, error_body([message("InternalError")]))

    async def _before(self, fault: BmcFault, request: web.Request) -> web.StreamResponse | None:
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        elif fault.kind == "status":
            return self._response(request, Answer(fault.status, error_body([message(fault.message)])))
        elif fault.kind == "unavailable":
            seconds = max(1, round(fault.seconds))
            body = error_body([message("ServiceTemporarilyUnavailable", seconds)])
            return self._response(request, Answer(503, body, {"Retry-After": str(seconds)}))
        elif fault.kind == "reset" and fault.when == "before":
            _reset(request)
            return web.Response()
        elif fault.kind == "hang":
            await self._hang(request)
            return web.Response(status=503)
        return None

    async def _hang(self, request: web.Request) -> None:
        """Until the client has had enough, or the server stops."""
        deadline = asyncio.get_running_loop().time() + HANG
        while asyncio.get_running_loop().time() < deadline and not self._stopping.is_set():
            if request.transport is None or request.transport.is_closing():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 0.2)

    async def _call(self, request: web.Request) -> Call:
        call = Call(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            headers={name.title(): value for name, value in request.headers.items()},
        )
        # Header names are case-insensitive; the service asks for them in one spelling.
        for name in ("OData-Version", "X-Auth-Token", "If-Match", "If-None-Match"):
            if name.title() in call.headers:
                call.headers = {**call.headers, name: call.headers[name.title()]}
        if request.method not in ("POST", "PATCH", "PUT"):
            return call
        if request.content_type == "multipart/form-data":
            call.parts = lambda: _parts(request, int(self.bmc.model.constants["image_limit"]))
            return call
        raw = await _read(request, JSON_LIMIT)
        if not raw:
            if request.method == "POST":
                call.body = {}
            return call
        if request.content_type not in ("application/json", "application/octet-stream") or (
            request.content_type == "application/octet-stream" and "Content-Type" in request.headers
        ):
            raise RedfishError(415, "UnrecognizedRequestBody")
        try:
            body = json.loads(raw)
        except (ValueError, UnicodeDecodeError) as error:
            raise RedfishError(400, "MalformedJSON") from error
        if not isinstance(body, dict):
            raise RedfishError(400, "UnrecognizedRequestBody")
        call.body = body
        return call

    def _response(self, request: web.Request, answer: Answer) -> web.Response:
        headers = {
            "OData-Version": "4.0",
            "Cache-Control": "no-cache",
            "Server": "AMI MegaRAC Redfish Service",
            "Access-Control-Allow-Origin": "*",
            **answer.headers,
        }
        if answer.body is None:
            return web.Response(status=answer.status, headers=headers)
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        headers["Content-Type"] = f"{answer.content_type}; charset=utf-8"
        return web.Response(status=answer.status, body=text.encode(), headers=headers)


class BmcFleet:
    """All BMCs of a rack. ``tls`` gives a BMC's context; by default it is made from its certificate and key."""

    def __init__(self, bmcs: Sequence[BmcConfig], tls: Callable[[BmcConfig], ssl.SSLContext] | None = None) -> None:
        make = tls or _own_context
        self.servers = {config.node: BmcServer(config, make(config)) for config in bmcs}
        if len(self.servers) != len(bmcs):
            raise ValueError("two emulated BMCs have the same node's name")

    async def start(self) -> None:
        """Open every port, or none: ``OSError`` names the address that can't be had."""
        try:
            for server in self.servers.values():
                try:
                    await server.start()
                except OSError as error:
                    raise OSError(
                        error.errno, f"{server.config.node}: can't listen on {server.config.address}: {error.strerror}"
                    ) from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close every port."""
        await asyncio.gather(*(server.stop() for server in self.servers.values()))

    def bmc(self, node: str) -> Bmc:
        """The BMC of that node; ``KeyError`` when there is none."""
        return self.servers[node].bmc

    def url(self, node: str) -> str:
        """Where that node's BMC answers."""
        return self.servers[node].url

    def inject(self, node: str, fault: BmcFault | Mapping[str, Any]) -> str:
        """Begin a fault at one BMC; returns its id. ``ValueError`` (pydantic's) says what is wrong with the data."""
        made = fault if isinstance(fault, BmcFault) else BmcFault.model_validate(dict(fault))
        return self.bmc(node).inject(made)

    def clear(self, node: str, fault_id: str | None = None) -> int:
        """End one fault of a BMC, or all of them; returns how many ended."""
        return self.bmc(node).faults.remove(fault_id)

    def faults(self, node: str) -> list[dict[str, Any]]:
        """The faults in force at one BMC, as data."""
        return self.bmc(node).faults.listed()

    async def restart(self, node: str) -> None:
        """Restart one BMC, as Manager.Reset does; returns when it answers again."""
        await self.servers[node].restart()

    async def ac_cycle(self, node: str) -> None:
        """Take mains power away and give it back: everything staged is live, the machine is off."""
        bmc = self.bmc(node)
        async with bmc.exclusive_power():
            await bmc.config.machine.power_off(False)
            bmc.activate_all()
        await self.servers[node].restart()


def _own_context(config: BmcConfig) -> ssl.SSLContext:
    if config.certificate is None or config.key is None:
        raise ValueError(f"{config.node}: the emulated BMC has neither a certificate and key nor a TLS context")
    return server_context(config.certificate, config.key)


def _reset(request: web.Request) -> None:
    """Reset the connection: with linger at zero the kernel sends RST instead of FIN."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def _read(request: web.Request, limit: int) -> bytes:
    data = bytearray()
    async for chunk in request.content.iter_any():
        data += chunk
        if len(data) > limit:
            raise RedfishError(413, "GeneralError")
    return bytes(data)


async def _parts(request: web.Request, limit: int) -> dict[str, bytes]:
    parts: dict[str, bytes] = {}
    total = 0
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or not part.name:
                continue
            data = bytearray()
            while chunk := await part.read_chunk(65536):
                data += chunk
                total += len(chunk)
                if total > limit:
                    raise RedfishError(413, "GeneralError")
            parts[part.name] = bytes(data)
    except (ValueError, AssertionError) as error:
        raise RedfishError(400, "UnrecognizedRequestBody") from error
    return parts
