"""Ties processes to the controller, so that a ``kill -9`` of it leaves nothing running.

:func:`tether` ties one process to its parent. Run as a program, this file stands between a controller and what it
starts, since ansible-runner has its child ignore SIGHUP and Ansible's workers leave their session::

    python -I -S tether.py <controller's process> <channel> command argument ...

It collects every descendant (as their subreaper) and ends them all when the controller dies or asks for it. The channel
is a file (a memfd of the controller) that holds JSON: ``environment`` for the command, since ansible-runner writes down
whatever environment it gives its child, and an environment may hold secrets; ``remove``, files to delete at the end.
Standard library only: it starts without site-packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
GRACE = 15.0
"""Seconds a command has to end by itself once it was asked to."""
KILL = 10.0
"""Seconds for the kernel to end what was killed."""


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")


def tether(parent: int | None = None, sign: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process ``sign`` when its parent dies; end now where it has died already.

    ``parent`` is the process that must be the parent; by default the one that multiprocessing forked this from, else
    whichever it is now.
    """
    if parent is None:
        origin = multiprocessing.parent_process()
        parent = origin.pid if origin is not None else os.getppid()
    _prctl(PR_SET_PDEATHSIG, sign)
    if os.getppid() != parent:
        os._exit(128 + sign)


def descendants(root: int) -> list[int]:
    """Every process below ``root`` now, parents before children; without those that have ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended since it was listed
        fields = text[text.rindex(")") + 2 :].split()
        if fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def end_descendants(root: int, seconds: float = KILL) -> bool:
    """Kill everything below ``root``, again and again until nothing is left (True) or the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        alive = descendants(root)
        if not alive:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if root == os.getpid():
            _reap()
        time.sleep(0.02)


def end_marked(mark: str, seconds: float = KILL) -> bool:
    """Kill every process of this user that was given ``mark`` (``NAME=value``) in its environment.

    The net below the supervisor: whatever a killed supervisor leaves behind has init for a parent.
    """
    deadline = time.monotonic() + seconds
    wanted = mark.encode()
    while True:
        alive = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        alive.append(int(entry.name))
        if not alive:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _reap() -> dict[int, int]:
    """Take the exit status of every child that has ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _start(command: list[str], environment: dict[str, str], mask: set[signal.Signals]) -> int:
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        tether(supervisor)
        for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(sign, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)
        os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is the point
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{command[0]} can't be started: {error}\n".encode())
    os._exit(127)


def supervise(controller: int, channel: str, command: list[str], *, grace: float = GRACE) -> int:
    """Run a command to its end, or to the controller's; its exit status, 128 and the signal's number after a signal."""
    mask = {*STOPS, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, mask)
    for sign in STOPS:
        signal.signal(sign, signal.SIG_DFL)  # an ignored signal would not be waited for
    tether(controller, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    told = json.loads(Path(channel).read_text(encoding="utf-8"))
    try:
        child = _start(command, {**told["environment"], **os.environ}, mask)
        return _wait(controller, child, mask, grace)
    finally:
        for name in told["remove"]:
            Path(name).unlink(missing_ok=True)


def _wait(controller: int, child: int, mask: set[signal.Signals], grace: float) -> int:
    deadline: float | None = None
    status: int | None = None
    while status is None:
        wait = 5.0 if deadline is None else max(0.0, deadline - time.monotonic())
        told = signal.sigtimedwait(mask, wait)
        status = _reap().get(child)
        if status is not None:
            break
        asked = told is not None and told.si_signo in STOPS
        late = deadline is not None and (asked or time.monotonic() >= deadline)
        if late or os.getppid() != controller:
            end_descendants(os.getpid())
            return 128 + signal.SIGKILL
        if asked:
            deadline = time.monotonic() + grace
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
    if deadline is not None or os.getppid() != controller:
        end_descendants(os.getpid())
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def supervised(command: list[str], channel: str, interpreter: str = sys.executable) -> list[str]:
    """The command as this program would run it for the calling process."""
    return [interpreter, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), channel, *command]


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
