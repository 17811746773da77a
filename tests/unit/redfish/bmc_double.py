"""A BMC in memory, for the client's tests: accounts that lock, sessions, ETags, and answers on demand."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from multidict import CIMultiDict

from metalyard.redfish.client import Bmc
from metalyard.redfish.pace import Pace

ROOT = "/redfish/v1/"
SESSIONS = "/redfish/v1/SessionService/Sessions"
SYSTEM = "/redfish/v1/Systems/1"


class JumpingPace(Pace):
    """A clock that jumps over every wait, and remembers the waits."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@dataclass
class Reply:
    """An answer: ``body`` is JSON, or bytes as they are."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def refusal(status: int, message_id: str, text: str = "", **headers: str) -> Reply:
    """An answer with one extended message."""
    message = {"MessageId": message_id, "Message": text}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"error": {"code": message_id, "@Message.ExtendedInfo": [message]}}, names)


@dataclass
class Request:
    """What the client sent."""

    method: str
    path: str
    headers: CIMultiDict[str]
    body: Any
    data: Any = None


Scripted = Reply | BaseException | Callable[[Request], Reply]


class _Exchange:
    """One request on its way, as aiohttp's context manager."""

    def __init__(self, double: BmcDouble, request: Request) -> None:
        self._double = double
        self._request = request

    async def __aenter__(self) -> Self:
        double = self._double
        double.in_flight += 1
        double.most_in_flight = max(double.most_in_flight, double.in_flight)
        try:
            await asyncio.sleep(0)
            double.event(f"before {self._request.method} {self._request.path}")
            reply = double.answer(self._request)
            double.event(f"after {self._request.method} {self._request.path}")
        finally:
            double.in_flight -= 1
        self.status = reply.status
        self.headers = CIMultiDict(reply.headers)
        body = reply.body
        self._body = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def read(self) -> bytes:
        return self._body

    def get_encoding(self) -> str:
        return "utf-8"


class BmcDouble:
    """``resources`` are served as they are; ``on`` scripts answers; ``event`` may raise, to kill the client there."""

    def __init__(self) -> None:
        self.accounts: dict[str, dict[str, Any]] = {
            "1": {"UserName": "admin", "password": "factory-Pass-1", "change": False, "failed": 0}
        }
        self.lock_after = 3
        self.session_limit = 8
        self.sessions: dict[str, str] = {}
        self.requests: list[Request] = []
        self.scripts: list[tuple[str, re.Pattern[str], list[Scripted]]] = []
        self.event: Callable[[str], None] = lambda name: None
        self.etags: dict[str, str] = {}
        self.wants_if_match: Callable[[str | None], int | None] = lambda value: None
        self.in_flight = self.most_in_flight = 0
        self._numbers = itertools.count(1)
        self.resources: dict[str, dict[str, Any]] = {
            ROOT: {
                "@odata.id": ROOT,
                "Vendor": "Example",
                "Systems": {"@odata.id": "/redfish/v1/Systems"},
                "Managers": {"@odata.id": "/redfish/v1/Managers"},
                "Chassis": {"@odata.id": "/redfish/v1/Chassis"},
                "AccountService": {"@odata.id": "/redfish/v1/AccountService"},
                "UpdateService": {"@odata.id": "/redfish/v1/UpdateService"},
                "Tasks": {"@odata.id": "/redfish/v1/TaskService"},
                "Links": {"Sessions": {"@odata.id": SESSIONS}},
            },
            "/redfish/v1/AccountService": {
                "MinPasswordLength": 13,
                "MaxPasswordLength": 20,
                "Accounts": {"@odata.id": "/redfish/v1/AccountService/Accounts"},
            },
            "/redfish/v1/Systems": collection(SYSTEM),
            SYSTEM: {
                "@odata.id": SYSTEM,
                "Id": "1",
                "SerialNumber": "SN-1",
                "PowerState": "On",
                "Boot": {},
                "Links": {
                    "ManagedBy": [{"@odata.id": "/redfish/v1/Managers/1"}],
                    "Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}],
                },
                "Actions": {
                    "#ComputerSystem.Reset": {
                        "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
                        "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart"],
                    }
                },
            },
            "/redfish/v1/Chassis/1": {"Id": "1", "SerialNumber": "CH-1"},
            "/redfish/v1/Managers/1": {
                "Id": "1",
                "ManagerType": "BMC",
                "FirmwareVersion": "1.0",
                "NetworkProtocol": {"@odata.id": "/redfish/v1/Managers/1/NetworkProtocol"},
                "Actions": {
                    "#Manager.Reset": {
                        "target": "/redfish/v1/Managers/1/Actions/Manager.Reset",
                        "ResetType@Redfish.AllowableValues": ["ForceRestart"],
                    }
                },
            },
            "/redfish/v1/UpdateService": {
                "FirmwareInventory": {"@odata.id": "/redfish/v1/UpdateService/FirmwareInventory"}
            },
            "/redfish/v1/TaskService": {"Tasks": {"@odata.id": "/redfish/v1/TaskService/Tasks"}},
            "/redfish/v1/TaskService/Tasks": collection(),
        }

    # For tests

    def on(self, method: str, path: str, *answers: Scripted) -> None:
        """Answer the next matching requests so, in order; then as usual. ``path`` is a regular expression."""
        self.scripts.append((method, re.compile(path), list(answers)))

    def always(self, method: str, path: str, answer: Scripted) -> None:
        """Answer every matching request so."""
        self.on(method, path, *[answer] * 1000)

    def client(self, **options: Any) -> Bmc:
        """A client that is not signed in, on a clock that jumps."""
        return Bmc("gpu-1", "bmc.test", self, pace=JumpingPace(), **options)

    def sent(self, method: str, path: str = "") -> list[Request]:
        """The requests that the client sent."""
        return [r for r in self.requests if r.method == method and re.search(path, r.path)]

    def password(self, user: str = "admin") -> str:
        """The password that an account really has."""
        return next(a["password"] for a in self.accounts.values() if a["UserName"] == user)

    def locked(self) -> bool:
        """Whether any account is locked."""
        return any(a["failed"] >= self.lock_after for a in self.accounts.values())

    # The transport

    def request(self, method: str, url: Any, **options: Any) -> _Exchange:
        request = Request(
            method, url.path_qs, CIMultiDict(options.get("headers") or {}), options.get("json"), options.get("data")
        )
        return _Exchange(self, request)

    def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        for method, pattern, answers in self.scripts:
            if answers and method == request.method and pattern.fullmatch(request.path):
                scripted = answers.pop(0)
                if isinstance(scripted, BaseException):
                    raise scripted
                return scripted(request) if callable(scripted) else scripted
        if request.path == SESSIONS and request.method == "POST":
            return self._login(request.body)
        if request.path == ROOT and request.method == "GET":
            return Reply(200, self.resources[ROOT])
        user = self.sessions.get(request.headers.get("X-Auth-Token", ""))
        if user is None:
            return refusal(401, "Base.1.8.NoValidSession")
        if request.method == "DELETE" and request.path.startswith(SESSIONS):
            self.sessions.pop(request.headers["X-Auth-Token"])
            return Reply(204)
        return self._authorised(user, request)

    def _login(self, body: dict[str, str]) -> Reply:
        account = next((a for a in self.accounts.values() if a["UserName"] == body["UserName"]), None)
        if account is None or account["failed"] >= self.lock_after or account["password"] != body["Password"]:
            if account is not None:
                account["failed"] += 1
            return refusal(401, "Base.1.8.ResourceAtUriUnauthorized")
        account["failed"] = 0
        if len(self.sessions) >= self.session_limit:
            return refusal(503, "Base.1.8.SessionLimitExceeded", "The session establishment failed")
        token = f"token-{next(self._numbers)}"
        self.sessions[token] = body["UserName"]
        headers = {"X-Auth-Token": token, "Location": f"{SESSIONS}/{token}"}
        if account["change"]:
            uri = self._uri(body["UserName"])
            message = {"MessageId": "Base.1.8.PasswordChangeRequired", "MessageArgs": [uri]}
            return Reply(201, {"@Message.ExtendedInfo": [message]}, headers)
        return Reply(201, {}, headers)

    def _uri(self, user: str) -> str:
        number = next(n for n, a in self.accounts.items() if a["UserName"] == user)
        return f"/redfish/v1/AccountService/Accounts/{number}"

    def _authorised(self, user: str, request: Request) -> Reply:
        account = next(a for a in self.accounts.values() if a["UserName"] == user)
        number = request.path.removeprefix("/redfish/v1/AccountService/Accounts/")
        if account["change"] and request.path != self._uri(user):
            return refusal(403, "Base.1.8.PasswordChangeRequired")
        if request.method == "GET":
            return self._get(request.path, number)
        if request.method == "PATCH":
            status = self.wants_if_match(request.headers.get("If-Match"))
            if status is not None:
                return refusal(status, "Base.1.8.PreconditionFailed")
            if number in self.accounts:
                target = self.accounts[number]
                target["UserName"] = request.body.get("UserName", target["UserName"])
                if "Password" in request.body:
                    target["password"], target["change"] = request.body["Password"], False
                return Reply(200, {})
            if request.path in self.resources:
                merge(self.resources[request.path], request.body)
                return Reply(200, {})
        if request.method == "POST" and request.path == "/redfish/v1/AccountService/Accounts":
            new = str(max(int(n) for n in self.accounts) + 1)
            self.accounts[new] = {
                "UserName": request.body["UserName"],
                "password": request.body["Password"],
                "change": False,
                "failed": 0,
            }
            return Reply(201, {})
        if request.method == "POST" and request.path.endswith("ComputerSystem.Reset"):
            self.resources[SYSTEM]["PowerState"] = "Off" if "Off" in request.body["ResetType"] else "On"
            return Reply(204)
        return refusal(404, "Base.1.8.ResourceMissingAtURI")

    def _get(self, path: str, number: str) -> Reply:
        if path == "/redfish/v1/AccountService/Accounts":
            return Reply(200, collection(*[f"{path}/{n}" for n in self.accounts]))
        if number in self.accounts:
            account = self.accounts[number]
            return Reply(200, {"Id": number, "UserName": account["UserName"], "Password": None})
        if path not in self.resources:
            return refusal(404, "Base.1.8.ResourceMissingAtURI")
        headers = {"ETag": self.etags[path]} if path in self.etags else {}
        return Reply(200, copy.deepcopy(self.resources[path]), headers)


def collection(*members: str, **more: Any) -> dict[str, Any]:
    """A collection of links."""
    return {"Members": [{"@odata.id": member} for member in members], **more}


def merge(target: dict[str, Any], change: dict[str, Any]) -> None:
    """What a PATCH does to a resource."""
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        else:
            target[key] = value
