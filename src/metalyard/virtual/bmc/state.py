"""What one BMC remembers: accounts, settings, firmware, logs. Written down before a client hears that it changed."""

from __future__ import annotations

import datetime as dt
import json
import secrets
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from metalyard.files import write_atomically


def timestamp() -> str:
    """Now, as Redfish writes it."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


class Part(BaseModel):
    """A part of the state, without unknown keys."""

    model_config = ConfigDict(extra="forbid")


class Account(Part):
    """A user of the BMC."""

    id: str
    user: str
    password: str
    role: str = "Administrator"
    enabled: bool = True
    change_required: bool = False


class Staged(Part):
    """Firmware that is written and waits for a reset."""

    version: str
    activation: str


class Boot(Part):
    """The boot override and order. ``order`` None: the model's own."""

    enabled: str = "Disabled"
    target: str = "None"
    mode: str | None = None
    order: list[str] | None = None
    pending_order: list[str] | None = None
    http_uri: str | None = None


class Event(Part):
    """A record of the event log."""

    id: int
    created: str
    sensor_type: str
    message: str
    severity: str = "OK"
    code: str = "Assert"


class Subscription(Part):
    """A destination of events."""

    id: str
    destination: str
    context: str = ""
    protocol: str = "Redfish"


class Remembered(Part):
    """Everything that survives a restart of the daemon; what is not in it is the hardware model's."""

    accounts: list[Account] = []
    bios: dict[str, Any] = {}
    bios_pending: dict[str, Any] = {}
    firmware: dict[str, str] = {}
    staged: dict[str, Staged] = {}
    boot: Boot = Boot()
    ntp_servers: list[str] | None = None
    ntp_enabled: bool | None = None
    session_timeout: int | None = None
    overlay: dict[str, dict[str, Any]] = {}
    log: list[Event] = []
    next_event: int = 1
    subscriptions: list[Subscription] = []
    last_reset: str | None = None


class Session(Part):
    """A login; gone when the BMC restarts."""

    id: str
    token: str
    account: str
    user: str
    created: str
    used: float
    """Monotonic seconds of the last request."""


class Task(Part):
    """A long operation; gone when the BMC restarts."""

    id: str
    name: str
    state: str = "New"
    status: str = "OK"
    percent: int = 0
    started: str
    ended: str | None = None
    messages: list[dict[str, Any]] = []
    lost: bool = False


class State:
    """One BMC's state: ``kept`` survives, sessions, tasks and failed logins do not.

    ``version`` grows with every change, so that who derives something from the state knows when to do it anew.
    """

    LOG_LIMIT = 500
    TASK_LIMIT = 64

    def __init__(self, path: Path | None, first: Remembered) -> None:
        self.path = path
        self.version = 0
        self.sessions: dict[str, Session] = {}
        self.tasks: dict[str, Task] = {}
        self.failures: dict[str, list[float]] = {}
        self.locked_until: dict[str, float] = {}
        self._next_task = 1
        self.kept = first
        if path is not None and path.is_file():
            try:
                self.kept = Remembered.model_validate_json(path.read_bytes())
            except ValueError as error:
                raise ValueError(
                    f"{path}: the emulated BMC's state can't be read: {error}. "
                    "Remove the file to begin with a machine as delivered."
                ) from error
        else:
            self.save()

    def save(self) -> None:
        """Note a lasting change: on disk when this returns."""
        self.version += 1
        if self.path is not None:
            data = json.dumps(self.kept.model_dump(mode="json"), indent=1, sort_keys=True)
            write_atomically(self.path, data.encode(), mode=0o600)

    def changed(self) -> None:
        """Note a change that need not last."""
        self.version += 1

    def account(self, account_id: str) -> Account | None:
        """The account of that id."""
        return next((account for account in self.kept.accounts if account.id == account_id), None)

    def user(self, name: str) -> Account | None:
        """The account of that user name."""
        return next((account for account in self.kept.accounts if account.user == name), None)

    def locked(self, account_id: str) -> bool:
        """Whether too many bad logins have locked the account for now."""
        return self.locked_until.get(account_id, 0.0) > time.monotonic()

    def new_session(self, account: Account) -> Session:
        """Begin a session."""
        session = Session(
            id=secrets.token_hex(16),
            token=secrets.token_urlsafe(32),
            account=account.id,
            user=account.user,
            created=timestamp(),
            used=time.monotonic(),
        )
        self.sessions[session.id] = session
        self.changed()
        return session

    def end_sessions(self, *, account: str | None = None, keep: str | None = None) -> None:
        """End the sessions of an account, or all, but for one."""
        for session in list(self.sessions.values()):
            if session.id != keep and (account is None or session.account == account):
                del self.sessions[session.id]
        self.changed()

    def expire(self, timeout: float) -> None:
        """End the sessions that nobody has used for ``timeout`` seconds."""
        limit = time.monotonic() - timeout
        expired = [session.id for session in self.sessions.values() if session.used < limit]
        for session_id in expired:
            del self.sessions[session_id]
        if expired:
            self.changed()

    def new_task(self, name: str) -> Task:
        """Begin a task; the oldest ended ones make room."""
        task = Task(id=str(self._next_task), name=name, started=timestamp())
        self._next_task += 1
        self.tasks[task.id] = task
        for old in list(self.tasks.values()):
            if len(self.tasks) <= self.TASK_LIMIT:
                break
            if old.ended is not None:
                del self.tasks[old.id]
        self.changed()
        return task

    def log(self, sensor_type: str, text: str, *, severity: str = "OK", code: str = "Assert") -> Event:
        """Append to the event log, which wraps when it is full."""
        event = Event(
            id=self.kept.next_event,
            created=timestamp(),
            sensor_type=sensor_type,
            message=text,
            severity=severity,
            code=code,
        )
        self.kept.next_event += 1
        self.kept.log = [*self.kept.log, event][-self.LOG_LIMIT :]
        self.save()
        return event

    def forget_volatile(self) -> None:
        """What a restart of the BMC loses."""
        self.sessions.clear()
        self.tasks.clear()
        self.failures.clear()
        self.locked_until.clear()
        self.changed()
