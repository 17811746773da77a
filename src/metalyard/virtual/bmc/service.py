"""One emulated BMC: who may do what to which resource, and what it answers. Knows nothing of HTTP's transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from metalyard.virtual.bmc import query
from metalyard.virtual.bmc.config import BmcConfig, Quirks
from metalyard.virtual.bmc.faults import BmcFault, FaultList
from metalyard.virtual.bmc.messages import RedfishError, base_registry, error_body
from metalyard.virtual.bmc.patching import validated
from metalyard.virtual.bmc.state import Account, Boot, Remembered, Session, State, timestamp
from metalyard.virtual.bmc.tree import OMIT, Resource, load_model
from metalyard.virtual.hardware import Hardware
from metalyard.virtual.machine import BootSource

ROOT = "/redfish/v1"
SESSIONS = f"{ROOT}/SessionService/Sessions"
log = logging.getLogger(__name__)


@dataclass
class Call:
    """One request. ``parts`` gives a multipart body's parts by name; ``body`` is a JSON object or None."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    parts: Callable[[], Awaitable[dict[str, bytes]]] | None = None
    account: Account | None = None
    session: Session | None = None
    stale: bool = False
    """Answer as at the moment a ``stale`` fault began."""


@dataclass
class Answer:
    """What goes back; ``body`` is JSON, or text of ``content_type``."""

    status: int
    body: dict[str, Any] | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


class Bmc:
    """One BMC."""

    def __init__(self, config: BmcConfig) -> None:
        self.config = config
        self.model = load_model(config.model)
        self.quirks = Quirks.model_validate({**self.model.constants.get("quirks", {}), **config.quirks})
        self.faults = FaultList()
        self.state = State(config.state_path, self._as_delivered())
        self.power = asyncio.Lock()
        self.updating = False
        self.switching = False
        self.away = asyncio.Event()
        """Set when the BMC restarts: the server closes its port, waits, and calls :meth:`come_back`."""
        self._jobs: set[asyncio.Task[None]] = set()
        self._index: dict[str, Resource] = {}
        self._indexed_for: tuple[Hardware, int, str] | None = None
        for fault in config.faults:
            self.inject(fault if isinstance(fault, BmcFault) else BmcFault.model_validate(fault))

    def _as_delivered(self) -> Remembered:
        account = Account(
            id="1",
            user=self.config.factory_user,
            password=self.config.factory_password,
            change_required=True,
        )
        return Remembered(accounts=[account], boot=Boot(mode=None))

    # -- background work ----------------------------------------------------------------------------------------

    def start_job(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that goes on after the answer; a defect in it is logged, not lost."""
        job = asyncio.create_task(work)
        self._jobs.add(job)

        def ended(done: asyncio.Task[None]) -> None:
            self._jobs.discard(done)
            if not done.cancelled() and done.exception() is not None:
                log.error("%s: a job of the emulated BMC failed", self.config.node, exc_info=done.exception())

        job.add_done_callback(ended)

    async def stop_jobs(self) -> None:
        """End what still runs."""
        jobs = list(self._jobs)
        for job in jobs:
            job.cancel()
        for job in jobs:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await job

    @contextlib.asynccontextmanager
    async def exclusive_power(self) -> AsyncIterator[None]:
        """One power operation at a time, in the order they came."""
        async with self.power:
            self.switching = True
            try:
                yield
            finally:
                self.switching = False

    def inject(self, fault: BmcFault) -> str:
        """Begin a fault; returns its id."""
        if fault.kind == "stale":
            for path, resource in self.resources().items():
                if fault.meets("GET", path) and not resource.action:
                    self.faults.frozen[path] = self.render(resource)
        return self.faults.add(fault)

    def lose_task(self, accepted: Answer) -> None:
        """Answer 404 for the task that was just promised."""
        task = self.state.tasks.get(str(accepted.body.get("Id"))) if isinstance(accepted.body, dict) else None
        if task is not None:
            task.lost = True
            self.state.changed()

    def host_boots(self) -> BootSource:
        """The host restarts by itself, without the BMC's doing: as at a warm reset, what was pending is live.

        Returns what the machine boots from.
        """
        from metalyard.virtual.bmc.handlers import system

        return system.self_test(self, "warm")

    def come_back(self) -> None:
        """What a restart of the BMC does: its own staged firmware is live, sessions and tasks are gone."""
        from metalyard.virtual.bmc.handlers import system

        self.state.forget_volatile()
        system.activate(self, "bmc")
        self.state.log("Management Subsystem Health", "BMC restarted")

    def activate_all(self) -> None:
        """What the loss of mains power does: everything staged is live."""
        from metalyard.virtual.bmc.handlers import system

        system.activate(self, "ac")

    # -- the tree -----------------------------------------------------------------------------------------------

    def bios(self) -> dict[str, Any]:
        """The BIOS attributes in force."""
        defaults = {name: entry["default"] for name, entry in self.model.constants["bios"].items()}
        return {**defaults, **self.config.hardware().bios, **self.state.kept.bios}

    def firmware(self) -> dict[str, str]:
        """The versions in force, by FirmwareInventory member."""
        return {**self.config.hardware().firmware, **self.state.kept.firmware}

    def context(self, hardware: Hardware | None = None) -> dict[str, Any]:
        """What the model's expressions see."""
        hardware = hardware or self.config.hardware()
        kept = self.state.kept
        constants = self.model.constants
        firmware = {**hardware.firmware, **kept.firmware}
        bios = {name: entry["default"] for name, entry in constants["bios"].items()}
        bios |= {**hardware.bios, **kept.bios}
        return {
            "hw": hardware,
            "node": self.config.node,
            "host": self.config.host,
            "power": self.config.machine.power_state,
            "kept": kept,
            "accounts": kept.accounts,
            "locked": self.state.locked,
            "sessions": list(self.state.sessions.values()),
            "tasks": [task for task in self.state.tasks.values() if not task.lost],
            "firmware": firmware,
            "bios": bios,
            "bios_future": {**bios, **kept.bios_pending},
            "boot_order": kept.boot.order or constants["boot_order"],
            "boot_future": kept.boot.pending_order or kept.boot.order or constants["boot_order"],
            "model": constants,
            "quirks": self.quirks,
            "now": timestamp(),
            "base_messages": base_registry,
            "choices": lambda values: [{"ValueName": value, "ValueDisplayName": str(value)} for value in values],
            "guid": _guid,
            "mac": lambda name: _mac(hardware.serial, name),
            "uuid": lambda name: str(uuid.uuid5(uuid.NAMESPACE_OID, f"{hardware.serial}/{name}")),
            "omit": OMIT,
        }

    def resources(self) -> dict[str, Resource]:
        """The tree as it is now, by path."""
        hardware = self.config.hardware()
        key = (hardware, self.state.version, self.config.machine.power_state)
        if self._indexed_for is None or self._indexed_for != key:
            self._index = self.model.index(self.context(hardware))
            # The caller may go on changing the same object; what was indexed has to be remembered as it was.
            self._indexed_for = (hardware.model_copy(deep=True), *key[1:])
        return self._index

    def members(self, path: str) -> list[Resource]:
        """The resources one level below a collection, in the model's order."""
        prefix = path + "/"
        return [
            one
            for one_path, one in self.resources().items()
            if one_path.startswith(prefix)
            and "/" not in one_path[len(prefix) :]
            and not one.action
            and not one.record.hidden
        ]

    def render(self, resource: Resource) -> dict[str, Any]:
        """A resource's whole body, with Members, overlay and ETag; not yet paged."""
        context = self.context()
        body = self.model.render(resource, context)
        _merge(body, self.state.kept.overlay.get(resource.path, {}))
        if resource.record.collection is not None:
            members = self.members(resource.path)
            if resource.record.collection == "embedded":
                body["Members"] = [self.model.render(member, context) for member in members]
            else:
                body["Members"] = [{"@odata.id": member.path} for member in members]
            body["Members@odata.count"] = len(members)
        body["@odata.etag"] = etag(body)
        return body

    # -- requests -----------------------------------------------------------------------------------------------

    async def answer(self, call: Call) -> Answer:
        """Answer one request; every refusal is an answer, no exception leaves here."""
        try:
            return await self._answer(call)
        except RedfishError as refused:
            return Answer(refused.status, error_body(refused.messages), dict(refused.headers))

    async def _answer(self, call: Call) -> Answer:
        path = call.path.rstrip("/") or "/"
        if path == "/redfish":
            self._only_reads(call, ["GET", "HEAD"])
            return Answer(200, {"v1": f"{ROOT}/"})
        if call.headers.get("OData-Version", "4.0") != "4.0":
            raise RedfishError(412, "PreconditionFailed")
        if path == f"{ROOT}/$metadata":
            self._only_reads(call, ["GET", "HEAD"])
            query.acceptable(call.headers, "application/xml")
            return Answer(200, query.metadata(self.model.records), content_type="application/xml")
        if path == f"{ROOT}/odata":
            self._only_reads(call, ["GET", "HEAD"])
            query.acceptable(call.headers, "application/json")
            root = self.render(self.resources()[ROOT])
            return Answer(200, query.service_document(root))
        from metalyard.virtual.bmc.handlers import accounts  # the handlers know this module

        # Members is another name of the collection for a POST.
        target = path.removesuffix("/Members") if call.method == "POST" else path
        login = call.method == "POST" and target == SESSIONS
        if not login and not (path == ROOT and call.method in ("GET", "HEAD")):
            accounts.authenticate(self, call)
        resource = self.resources().get(target)
        if resource is None or (resource.record.hidden and call.method != "POST" and not resource.action):
            raise RedfishError(404, "ResourceMissingAtURI", path)
        allowed = _allowed(resource)
        if call.method not in allowed:
            raise RedfishError(405, "OperationNotAllowed", headers={"Allow": ", ".join(allowed)})
        if call.account is not None:
            accounts.authorise(self, call, resource)
        if call.method in ("GET", "HEAD"):
            if resource.record.on_get is not None:
                return await self._act(call, resource)
            return await self._read(call, resource, allowed)
        if call.method == "PATCH":
            return await self._patch(call, resource)
        return await self._act(call, resource)

    def _only_reads(self, call: Call, allowed: list[str]) -> None:
        if call.method not in allowed:
            raise RedfishError(405, "OperationNotAllowed", headers={"Allow": ", ".join(allowed)})

    async def _read(self, call: Call, resource: Resource, allowed: list[str]) -> Answer:
        query.acceptable(call.headers, "application/json")
        options = query.Options.parse(call.query)
        body = dict(self.faults.frozen.get(resource.path, {})) if call.stale else {}
        body = body or self.render(resource)
        tag = str(body["@odata.etag"])
        headers = {"ETag": tag, "Allow": ", ".join(allowed)}
        if schema := query.described_by(resource.record.type):
            headers["Link"] = f"<{schema}>; rel=describedby"
        if _matches(call.headers.get("If-None-Match", ""), tag):
            return Answer(304, None, headers)
        return Answer(200, query.shaped(self, resource, body, options), headers)

    async def _patch(self, call: Call, resource: Resource) -> Answer:
        from metalyard.virtual.bmc.handlers import HANDLERS

        if call.body is None:
            raise RedfishError(400, "UnrecognizedRequestBody")
        self._precondition(call, resource)
        current = self.render(resource)
        change, messages = validated(resource.record.patch, call.body, current)
        if change:
            handler = HANDLERS[resource.record.on_patch] if resource.record.on_patch else None
            if handler is not None:
                call.body = change
                answer = await handler(self, call, resource)
                if answer is not None:
                    return answer
            else:
                _merge(self.state.kept.overlay.setdefault(resource.path, {}), change)
                self.state.save()
        fresh = self.resources().get(resource.path)
        if fresh is None:
            return Answer(204)
        body = self.render(fresh)
        if messages:
            body["@Message.ExtendedInfo"] = messages
        return Answer(200, body, {"ETag": str(body["@odata.etag"])})

    async def _act(self, call: Call, resource: Resource) -> Answer:
        from metalyard.virtual.bmc.handlers import HANDLERS

        record = resource.record
        by_method = {"GET": record.on_get, "HEAD": record.on_get, "DELETE": record.on_delete, "POST": record.on_post}
        name = resource.action or by_method[call.method]
        if name is None:
            raise RedfishError(405, "OperationNotAllowed")
        if call.headers.get("If-Match"):
            if resource.action and self.quirks.refuse_if_match_on_actions:
                raise RedfishError(412, "PreconditionFailed")
            if call.method == "DELETE":
                self._precondition(call, resource)
        if call.method == "POST" and call.body is None and call.parts is None:
            raise RedfishError(400, "UnrecognizedRequestBody")
        answer = await HANDLERS[name](self, call, resource)
        return answer if answer is not None else Answer(204)

    def _precondition(self, call: Call, resource: Resource) -> None:
        given = call.headers.get("If-Match", "")
        if not given:
            if self.quirks.require_if_match:
                raise RedfishError(428, "PreconditionRequired")
            return
        if not _matches(given, str(self.render(resource)["@odata.etag"])):
            raise RedfishError(412, "PreconditionFailed")


def etag(body: Mapping[str, Any]) -> str:
    """A strong ETag of digits, as AMI's; the clock does not count as a change."""
    stable = {key: value for key, value in body.items() if key not in ("DateTime", "@odata.etag")}
    return f'"{zlib.crc32(repr(sorted(stable.items())).encode()):010d}"'


def _matches(header: str, tag: str) -> bool:
    given = [one.strip().removeprefix("W/") for one in header.split(",") if one.strip()]
    return "*" in given or tag in given


def _allowed(resource: Resource) -> list[str]:
    record = resource.record
    if resource.action:
        return ["POST"]
    allowed = [] if record.hidden else ["GET", "HEAD"]
    allowed += ["PATCH"] if record.patch else []
    allowed += ["POST"] if record.on_post else []
    allowed += ["DELETE"] if record.on_delete else []
    return allowed


def _merge(target: dict[str, Any], change: Mapping[str, Any]) -> None:
    """Put a change into a body: objects are merged, everything else is replaced."""
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = value


def _mac(serial: str, name: str) -> str:
    """A locally administered address that follows from the serial, so that it stays the same."""
    number = uuid.uuid5(uuid.NAMESPACE_OID, f"{serial}/{name}").int
    octets = [0x02, *(number >> shift & 0xFF for shift in range(0, 40, 8))]
    return ":".join(f"{octet:02X}" for octet in octets)


def _guid(value: str) -> str:
    """A GUID in Redfish's spelling: four groups of four digits."""
    digits = value.removeprefix("0x")
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))
