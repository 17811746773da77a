"""What the virtual rack needs of the machine it runs on: packages, kernel settings, and how podman is called."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CONTAINERS_CONF = Path(__file__).with_name("containers.conf")
"""Podman's settings; Molecule uses the same file through the environment variable of that name."""

TOOLS: dict[str, str] = {
    "podman": "podman",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "iptables": "iptables",
    "gpg": "gpg",
    "dpkg-deb": "dpkg",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
"""Program to the Debian and Ubuntu package that brings it."""

HELPERS: dict[str, str] = {"netavark": "netavark", "aardvark-dns": "aardvark-dns"}
"""Podman's network helpers, which lie outside PATH."""

HELPER_FOLDERS = ("/usr/lib/podman", "/usr/libexec/podman", "/usr/local/lib/podman", "/usr/local/libexec/podman")

SYSCTLS: dict[str, int] = {"fs/inotify/max_user_instances": 8192, "fs/inotify/max_user_watches": 524288}
"""Kernel settings and the least they must be: at the default of 128 only 22 containers with systemd start."""


class HostError(Exception):
    """This machine can't carry the virtual rack; the message names what is missing and the command that brings it."""


class CommandError(Exception):
    """A command failed; the message holds the command's name, its exit status and the end of what it said."""


@dataclass(frozen=True)
class Finished:
    """A finished command: exit status and what it said."""

    status: int
    stdout: str
    stderr: str


def _says(text: str) -> None:
    print(text, flush=True)


def sudo() -> list[str]:
    """Prefix that makes a command run as root: empty for root; raises :class:`HostError` without root and sudo."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        raise HostError("the virtual rack needs root for podman's network: run the command as root, or install sudo")
    return ["sudo", "-n"]


def podman(*arguments: str) -> list[str]:
    """The podman command line with the rack's settings, as root."""
    return [*sudo(), "env", f"CONTAINERS_CONF={CONTAINERS_CONF}", "podman", *arguments]


def missing() -> list[str]:
    """Debian packages that this machine lacks, sorted."""
    lacking = {package for program, package in TOOLS.items() if _which(program) is None}
    for helper, package in HELPERS.items():
        if not any(Path(folder, helper).exists() for folder in HELPER_FOLDERS):
            lacking.add(package)
    return sorted(lacking)


def _which(program: str) -> str | None:
    # Debian keeps iptables and runc in sbin, which a user's PATH leaves out.
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")


def prepare(progress: Callable[[str], None] = _says) -> list[str]:
    """Install what is missing and raise kernel settings that are too low; returns what was done, one text each.

    Raises :class:`HostError` naming the command to run where this process may not do it itself.
    """
    done: list[str] = []
    packages = missing()
    if packages:
        if shutil.which("apt-get") is None:
            raise HostError(f"missing programs; install these packages (Debian's names): {' '.join(packages)}")
        command = f"apt-get install --yes --no-install-recommends {' '.join(packages)}"
        progress(f"installing {', '.join(packages)}")
        environment = [*sudo(), "env", "DEBIAN_FRONTEND=noninteractive"]
        _install([*environment, "apt-get", "update", "--quiet"], command)
        _install([*environment, *command.split()], command)
        still = missing()
        if still:
            raise HostError(f"still missing after {command!r}: {', '.join(still)}; install them by hand")
        done.append(f"installed {', '.join(packages)}")
    for name, least in SYSCTLS.items():
        path = Path("/proc/sys", name)
        try:
            now = int(path.read_text())
        except (OSError, ValueError):
            continue
        if now >= least:
            continue
        setting = f"{name.replace('/', '.')}={least}"
        result = subprocess.run([*sudo(), "sysctl", "-q", "-w", setting], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise HostError(f"{setting.split('=')[0]} is {now}, needs {least}: run 'sudo sysctl -w {setting}'")
        done.append(f"set {setting} (was {now}), until the next boot")
    return done


def _install(argv: Sequence[str], command: str) -> None:
    result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900)
    if result.returncode != 0:
        tail = (result.stderr or result.stdout).strip().splitlines()[-3:]
        raise HostError(f"can't install what the rack needs ({' / '.join(tail)}): run 'sudo {command}'")


async def run(
    argv: Sequence[str],
    *,
    deadline: float = 120.0,
    check: bool = True,
    stdin: bytes | None = None,
) -> Finished:
    """Run a command with a deadline in seconds; raises :class:`CommandError` unless ``check`` is off."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    name = " ".join(argv[:6])
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), deadline)
    except TimeoutError:
        raise CommandError(f"{name}: not done within {deadline:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    finished = Finished(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))
    if check and finished.status != 0:
        tail = (finished.stderr or finished.stdout).strip().splitlines()[-4:]
        raise CommandError(f"{name}: exit status {finished.status}: {' / '.join(tail)}")
    return finished


async def run_podman(
    *arguments: str, deadline: float = 120.0, check: bool = True, stdin: bytes | None = None
) -> Finished:
    """Run podman with the rack's settings; see :func:`run`."""
    return await run(podman(*arguments), deadline=deadline, check=check, stdin=stdin)
