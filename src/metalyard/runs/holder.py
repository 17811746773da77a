"""Who holds a node: a process, told apart from any later one that gets the same number."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

ENVIRONMENT = "METALYARD_HOLDER"
"""Where a controller tells its children who holds the nodes they work on."""
PROC = Path("/proc")


@cache
def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


@cache
def _boot() -> str:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_space() -> str:
    try:
        return str((PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when it is gone or only its exit status is left."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name in parentheses may hold anything
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user number without a name, as in some containers
        return str(os.getuid())


@dataclass(frozen=True)
class Holder:
    """A process that works on nodes. ``started`` is in clock ticks since boot; with ``boot`` it can't recur."""

    user: str
    host: str
    pid: int
    started: int
    boot: str = ""
    machine: str = ""
    space: str = ""
    """The process's namespace of process numbers; a number means nothing outside it."""

    @classmethod
    def of(cls, pid: int | None = None) -> Holder:
        """The process of that number, by default this one."""
        number = os.getpid() if pid is None else pid
        return cls(
            user=_user(),
            host=socket.gethostname(),
            pid=number,
            started=started(number) or 0,
            boot=_boot(),
            machine=_machine(),
            space=_pid_space(),
        )

    @classmethod
    def ambient(cls) -> Holder:
        """Who this process works for: the controller that started it, else the ``ansible-playbook`` it belongs to.

        An Ansible action runs in a worker that ends with its task, so the worker's parent is the holder.
        """
        text = os.environ.get(ENVIRONMENT)
        if text:
            try:
                return cls.from_dict(json.loads(text))
            except (ValueError, TypeError, KeyError):
                pass  # not ours: someone else's variable of that name must not stop a run
        return cls.of(os.getppid() if _is_worker() else None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON and the ledger."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Holder:
        """The holder that :meth:`as_dict` described."""
        return cls(
            user=str(data["user"]),
            host=str(data["host"]),
            pid=int(data["pid"]),
            started=int(data["started"]),
            boot=str(data.get("boot", "")),
            machine=str(data.get("machine", "")),
            space=str(data.get("space", "")),
        )

    def environment(self) -> dict[str, str]:
        """The variable that tells children who holds their nodes."""
        return {ENVIRONMENT: json.dumps(self.as_dict(), sort_keys=True)}

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, process {self.pid}"

    def _here(self) -> bool:
        """Whether the number means something to this process: same machine, same boot, same namespace."""
        return self.host == socket.gethostname() and self.boot == _boot() and self.space == _pid_space()

    def alive(self) -> bool:
        """Whether it is certain that the process runs."""
        return self._here() and started(self.pid) == self.started

    def gone(self) -> str | None:
        """Why it is certain that the process no longer runs; None where it runs or this machine can't tell."""
        if self.host == socket.gethostname() and self.machine and self.machine == _machine() and self.boot != _boot():
            return f"{self.host} was restarted since"
        if not self._here():
            return None
        now = started(self.pid)
        if now is None:
            return f"process {self.pid} on {self.host} is gone"
        return None if now == self.started else f"process {self.pid} on {self.host} is another one now"


def _is_worker() -> bool:
    """Whether this process is a fork of the same program, as Ansible's workers are."""
    try:
        own = (PROC / "self/cmdline").read_bytes()
        return own == (PROC / str(os.getppid()) / "cmdline").read_bytes()
    except OSError:
        return False
