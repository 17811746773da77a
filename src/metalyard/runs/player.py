"""Plays playbooks with ansible-runner: follows them, lets an operator stop them, and leaves no orphan and no secret.

ansible-runner writes its command and environment down (``artifacts/ansible/command``). What this process inherited
therefore goes to the child by a memfd, and only what is set here is in that file. Extra variables, which may hold
secrets too, go by a file for this user alone that is deleted when the playbooks end, also after a ``kill -9``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from ansible_runner.config.runner import RunnerConfig
from ansible_runner.runner import Runner

from metalyard.files import write_atomically
from metalyard.runs.events import Event, Follower, NodeStageEvent
from metalyard.runs.tether import GRACE, KILL, descendants, end_marked, supervised

IDENT = "ansible"
"""Folder of ansible-runner's artifacts below ``artifacts`` in the run's folder."""
VARIABLES = "extra_vars.json"
POLL = 0.25
"""Seconds between two looks at what is new."""
BEAT = 30.0
"""Seconds between two signs of life in the ledger."""
TAIL = 12
"""Lines of Ansible's output that explain a run that failed as a whole."""
FINISHED = (0, 1, 2, 4, 5)
"""Exit statuses with which ansible-playbook comes to its own end."""
SHOWN = ("HOME", "LANG")
"""Inherited variables that may be written down."""


@dataclass
class Trouble:
    """The last task that went wrong for a host outside what the playbook caught."""

    task: str
    message: str
    unreachable: bool = False


@dataclass
class Played:
    """How the playbooks ended. ``status`` is ansible-playbook's exit status; ``changed`` counts tasks by host."""

    status: int
    stopped: signal.Signals | None = None
    trouble: dict[str, Trouble] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    tail: str = ""


def settings(forks: int) -> dict[str, str]:
    """Ansible's settings that belong to how it is driven, not to what the playbooks mean."""
    return {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "LC_ALL": os.environ.get("LC_ALL") or "C.UTF-8",
        "ANSIBLE_FORKS": str(forks),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=15"
        " -o ServerAliveCountMax=4",
        "ANSIBLE_TIMEOUT": "30",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "False",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "PYTHONUNBUFFERED": "1",
    }


@contextlib.contextmanager
def _unseen(content: Mapping[str, Any]) -> Iterator[str]:
    """The path of a file in memory that holds this as JSON; only this user's processes can open it."""
    handle = os.memfd_create("metalyard-channel")
    try:
        data = json.dumps(content).encode()
        while data:
            data = data[os.write(handle, data) :]
        yield f"/proc/{os.getpid()}/fd/{handle}"
    finally:
        os.close(handle)


class Player:
    """One run of playbooks. ``tell`` gets every event, ``beat`` is called now and then; both from one thread."""

    def __init__(self, folder: Path, tell: Callable[[Event], None], beat: Callable[[], None]) -> None:
        self.folder = folder
        self.follower = Follower(folder)
        self.played = Played(status=1)
        self._tell = tell
        self._beat = beat
        self._channel = ""
        self._requests: list[signal.Signals] = []
        self._sent = 0
        self._asked: float | None = None
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._tasks: list[tuple[str, str]] = []

    # -- playing ----------------------------------------------------------------------------------------------------

    def play(
        self,
        playbooks: Sequence[str],
        *,
        inventory: Path,
        environment: Mapping[str, str],
        limit: str | None = None,
        check: bool = False,
        extra_vars: Mapping[str, Any] | None = None,
        forks: int = 10,
    ) -> Played:
        """Play to the end, or until SIGINT or SIGTERM; a second one of them ends it at once."""
        config = RunnerConfig(
            private_data_dir=str(self.folder),
            playbook=self._together(playbooks),
            inventory=str(inventory.absolute()),
            limit=limit,
            ident=IDENT,
            envvars={**settings(forks), **environment},
            cmdline="--check --diff" if check else None,
            quiet=True,
            fact_cache_type="",
        )
        config.prepare()
        config.pexpect_timeout = 2
        own = {key: value for key, value in config.env.items() if os.environ.get(key) != value or key in SHOWN}
        command = list(config.command)
        variables = self.folder / VARIABLES
        remove = []
        if extra_vars:
            write_atomically(variables, json.dumps(dict(extra_vars)).encode())
            command[1:1] = ["-e", f"@{variables}"]
            remove.append(str(variables))
        with (
            _unseen({"environment": dict(os.environ), "remove": remove}) as channel,
            contextlib.ExitStack() as stack,
        ):
            stack.callback(variables.unlink, missing_ok=True)
            self._channel = channel
            config.command = supervised(command, channel)
            config.env = own
            stack.enter_context(self._signals())
            watcher = threading.Thread(target=self._watch, name="metalyard-follow", daemon=True)
            watcher.start()
            try:
                runner = Runner(config, event_handler=self._on_event, cancel_callback=self._overdue)
                _, status = runner.run()
            finally:
                self._done.set()
                watcher.join()
        self.played.status = int(status) if status is not None else 128 + signal.SIGKILL
        if self._requests or self.played.status not in FINISHED:
            end_marked(f"METALYARD_RUN={environment['METALYARD_RUN']}")
        self.played.stopped = self._requests[0] if self._requests else None
        self.played.tail = self._output()
        return self.played

    def _together(self, playbooks: Sequence[str]) -> str:
        """One playbook that imports them all: of several, ansible-playbook plays none after a host's first failure."""
        if len(playbooks) == 1:
            return playbooks[0]
        text = yaml.safe_dump([{"import_playbook": name} for name in playbooks], explicit_start=True)
        target = self.folder / "playbook.yml"
        write_atomically(target, text.encode())
        return str(target)

    def _output(self) -> str:
        """The end of what Ansible printed."""
        try:
            text = (self.folder / "artifacts" / IDENT / "stdout").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-TAIL:])

    # -- stopping ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn SIGINT and SIGTERM into requests while the playbooks run; signals reach the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sign: signal.signal(sign, self._request) for sign in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)

    def _request(self, number: int, _frame: FrameType | None) -> None:
        self._requests.append(signal.Signals(number))

    def _pass_on(self) -> None:
        """Let the supervisor know of requests that it has not heard of."""
        if self._sent >= len(self._requests):
            return
        pid = self._supervisor()
        if pid is None:
            return  # not started yet, or ended; looked at again soon
        self._asked = self._asked or time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        self._sent += 1

    def _supervisor(self) -> int | None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                if self._channel.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return pid
        return None

    def _overdue(self) -> bool:
        """Whether the supervisor was asked to stop and has not, long after it should have."""
        return self._asked is not None and time.monotonic() - self._asked > GRACE + KILL + 5

    # -- following --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._done.wait(POLL):
            self._pass_on()
            self._report()
            if time.monotonic() - last > BEAT:
                last = time.monotonic()
                self._beat()
        self._report()

    def _report(self) -> None:
        for event in self.follower.poll():
            self._tell(event)
        with self._lock:
            tasks, self._tasks = self._tasks, []
        for host, task in tasks:
            stage = self.follower.stage(host)
            if stage:
                self._tell(NodeStageEvent(host, stage, "running", task))

    def _on_event(self, event: dict[str, Any]) -> bool:
        """What ansible-runner read off Ansible; whether to keep it in the run's folder."""
        data = event.get("event_data") or {}
        host, task = str(data.get("host") or ""), str(data.get("task") or "")
        kind = event.get("event")
        if kind == "runner_on_start":
            with self._lock:
                self._tasks.append((host, task))
            return False
        if kind == "runner_on_unreachable" or (kind == "runner_on_failed" and not data.get("ignore_errors")):
            result = data.get("res") or {}
            text = " ".join(str(result.get("msg") or "no message").split())
            self.played.trouble[host] = Trouble(task, text, unreachable=kind == "runner_on_unreachable")
        if kind == "playbook_on_stats":
            self.played.changed = {str(name): int(count) for name, count in (data.get("changed") or {}).items()}
        return True
