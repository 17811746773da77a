"""The virtual rack from outside: up, down, status, faults. What the command line and tests call.

``home`` is the rack's own folder: everything it keeps is there, and :func:`up` is the same at the first and at every
later call. Containers carry the site's label and are removed by :func:`down`, which leaves ``home`` as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from metalyard.files import write_atomically
from metalyard.plan.catalogue import load_baseline, load_profile
from metalyard.plan.model import SecretRef, SitePlan
from metalyard.virtual import daemon, faultbook, host, network, packages, services
from metalyard.virtual.bmc.firmware import firmware_image
from metalyard.virtual.bmc.tls import ensure_authority
from metalyard.virtual.book import Book

READY = 90.0
"""Seconds that the rack's process may take to open everything."""

GONE = 30.0
"""Seconds that it may take to end."""


class RackError(Exception):
    """The rack could not do what was asked; the message says why and what to do."""


def _says(text: str) -> None:
    print(text, flush=True)


def up(plan: SitePlan, home: Path, scenario: str = "demo", progress: Callable[[str], None] = _says) -> None:
    """Start the virtual rack; what runs already is left as it is. Raises :class:`RackError`."""
    wanted = faultbook.scenario(scenario)
    with _exclusive(home), _explained():
        asyncio.run(_up(plan, home.resolve(), wanted, progress))


async def _up(plan: SitePlan, home: Path, scenario: faultbook.Scenario, say: Callable[[str], None]) -> None:
    started = time.monotonic()
    host.prepare(say)
    baseline = load_baseline(plan)
    profile = load_profile(plan, plan.nodes[0].profile)
    await packages.build(home / "apt", profile, [baseline], key=home / "secrets" / "apt-signing-key.asc", progress=say)
    authority = _credentials(plan, home)
    _firmware(plan, home)
    running = await _status(home)
    if running is not None and running.get("made_of") != daemon.made_of(plan):
        say("emulators: plan or program have changed, starting them anew; machines stay as they are")
        await _end_process(home)
        running = None
    if running is None:
        book = Book.begin(plan, home, scenario)
    else:
        book = Book.open(plan, home)
        if book.memory.scenario != scenario.name:
            raise RackError(
                f"the rack runs scenario '{book.memory.scenario}': end it with 'metalyard virtual down' before "
                f"'{scenario.name}' can start"
            )
    bridge = await network.ensure(plan)
    public = plan.path(plan.ssh.key).with_name(plan.path(plan.ssh.key).name + ".pub").read_text().strip()
    fabric = daemon.fabric_service(plan, home, bridge)
    if fabric is not None:
        await fabric.up(public, book.cables(), say)
    mirror = urlsplit(plan.images.mirror) if plan.images.mirror else None
    # The daemon's servers listen on the bridge's address, which is there once a container is on the bridge.
    if await _status(home) is None:
        say("emulators: starting BMCs, MAAS region, package server")
        await _start(plan, home)
    await services.clock(plan, network.gateway(plan), say)
    if mirror is not None and mirror.hostname == network.gateway(plan):
        registry = services.RegistryService(plan, home, mirror.hostname, mirror.port or 443)
        await registry.up(authority, say)
    faults = ", ".join(f"{placed.node}: {placed.fault}" for placed in book.memory.faults) or "none"
    say(f"virtual rack '{plan.site}' is up: {len(plan.nodes)} machines; faults: {faults}")
    say(f"({time.monotonic() - started:.0f} s)")


def _reference(plan: SitePlan, reference: SecretRef, fallback: Path) -> Path:
    """Where a secret of the plan is kept; a rack can only make those that are files."""
    return plan.path(reference.file) if reference.file is not None else fallback


def _credentials(plan: SitePlan, home: Path) -> Any:
    """Make what a site's people would have: passwords, keys, and the certificates of BMCs and servers."""
    folder = home / "secrets"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The daemon reads them below home, the plan may name other files with the same content.
    wanted: dict[str, tuple[SecretRef, Callable[[], str]]] = {
        "factory-password": (plan.bmc.factory_password, lambda: secrets.token_urlsafe(12)),
        "maas-api-key": (plan.maas.key, lambda: ":".join(secrets.token_urlsafe(12) for _ in range(3))),
    }
    for name, (reference, make) in wanted.items():
        own = folder / name
        if not own.exists():
            write_atomically(own, (make() + "\n").encode(), mode=0o600)
        named = _reference(plan, reference, own)
        if not named.exists():
            write_atomically(named, own.read_bytes(), mode=0o600)
    key = plan.path(plan.ssh.key)
    if not key.exists():
        key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"metalyard@{plan.site}", "-f", str(key)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise RackError(f"ssh-keygen could not make {key}: {done.stderr.strip()}")
    authority = ensure_authority(home / "tls")
    addresses = sorted({node.bmc.address.rpartition(":")[0] or node.bmc.address for node in plan.nodes})
    authority.issue("bmc", addresses, home / "tls" / "bmc.pem", home / "tls" / "bmc-key.pem")
    return authority


def _firmware(plan: SitePlan, home: Path) -> None:
    """The images that the baseline names, below the site's firmware folder."""
    folder = home / "firmware"
    for target in load_baseline(plan).firmware:
        if target.image and "://" not in target.image and not (folder / target.image).exists():
            firmware_image(folder / target.image, [target.match.removeprefix("^").removesuffix("$")], target.version)
    # Where the firmware role looks by default.
    link = plan.state_dir / "firmware"
    if folder.is_dir() and not link.exists() and not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        link.symlink_to(os.path.relpath(folder, link.parent))


async def _start(plan: SitePlan, home: Path) -> None:
    """Start the rack's process and wait until it is ready."""
    await _end_process(home)
    log = home / "daemon.log"
    command = [sys.executable, "-m", "metalyard.virtual.daemon", f"--plan={plan.root}", f"--home={home}"]
    if plan.source.name != "site.yml":
        command[3] = f"--plan={plan.root / plan.source}"
    with log.open("ab") as stream:
        offset = stream.tell()
        process = subprocess.Popen(  # noqa: ASYNC220 - it outlives this process
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    until = time.monotonic() + READY
    while time.monotonic() < until:
        if await _status(home) is not None:
            return
        if process.poll() is not None:
            break
        await asyncio.sleep(0.2)
    else:
        process.terminate()
    with log.open("rb") as stream:
        stream.seek(offset)
        said = stream.read().decode(errors="replace").strip().splitlines()[-5:]
    raise RackError(f"the rack's process did not start: {' / '.join(said) or 'it said nothing'} (log: {log})")


def down(plan: SitePlan, home: Path, progress: Callable[[str], None] | None = None) -> None:
    """End the virtual rack: its process, containers and network. ``home`` stays, its ledger set apart. Idempotent."""
    say = progress or (lambda text: None)
    if not home.exists():
        return
    with _exclusive(home), _explained():
        asyncio.run(_down(plan, home.resolve(), say))


async def _down(plan: SitePlan, home: Path, say: Callable[[str], None]) -> None:
    await _end_process(home)
    if host.missing().count("podman"):
        return
    removed = await network.remove_all(plan)
    # Disks are gone with their containers, and so is what the region and the BMCs know of them.
    for path in (*(home / "bmc").glob("*.json"), *(home / "maas").glob("*"), home / "rack.json"):
        path.unlink(missing_ok=True)
    say(f"removed {', '.join(removed) or 'no container'}")
    if plan.state_dir.is_dir() and home in plan.state_dir.parents:
        # A ledger of machines that are gone would make the next rack's nodes look brought up already.
        ended = home / "ended" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
        ended.parent.mkdir(exist_ok=True)
        plan.state_dir.rename(ended)
        say(f"ledger, runs and report of this rack are kept in {ended}")


def status(plan: SitePlan, home: Path) -> dict[str, Any]:
    """What runs: ``running``, ``scenario``, ``nodes`` (name to power and container), ``services``, ``faults``."""
    with _explained():
        return asyncio.run(_whole_status(plan, home.resolve()))


async def _whole_status(plan: SitePlan, home: Path) -> dict[str, Any]:
    found = await _status(home)
    containers = {} if "podman" in host.missing() else await network.containers(plan)
    powers: dict[str, Any] = (found or {}).get("nodes", {})
    names = {node.name for node in plan.nodes}
    return {
        "running": found is not None,
        "scenario": (found or {}).get("scenario", ""),
        "nodes": {
            name: {"power": powers.get(name, {}).get("power", "unknown"), "container": containers.get(name, "none")}
            for name in sorted(names)
        },
        "services": {name: state for name, state in sorted(containers.items()) if name not in names},
        "faults": (found or {}).get("faults", []),
    }


def fault(plan: SitePlan, home: Path, node: str, fault: str, **arguments: Any) -> None:
    """Put a fault into a node; it shows at once. Raises :class:`RackError`."""
    body = {"node": node, "fault": fault, "arguments": arguments}
    with _explained():
        asyncio.run(_ask(home.resolve(), "POST", "/faults", body))


def clear(plan: SitePlan, home: Path, node: str, fault: str) -> None:
    """Take a fault out of a node. Raises :class:`RackError`."""
    with _explained():
        asyncio.run(_ask(home.resolve(), "DELETE", "/faults", {"node": node, "fault": fault}))


# The process behind it


async def _ask(home: Path, method: str, path: str, body: Any = None, *, deadline: float = 120.0) -> dict[str, Any]:
    """Ask the rack's process. Raises :class:`RackError` with its words, or when it does not run."""
    # By a descriptor of the folder: a socket's path may hold 107 characters only.
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RackError(f"the virtual rack is not up ({home}: {error.strerror}): run 'metalyard virtual up'") from None
    try:
        connector = aiohttp.UnixConnector(f"/proc/self/fd/{folder}/{daemon.SOCKET}")
        timeout = aiohttp.ClientTimeout(total=deadline)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(method, f"http://rack{path}", json=body) as reply,
        ):
            answer: dict[str, Any] = await reply.json()
            if reply.status != 200:
                raise RackError(str(answer.get("error") or f"the rack's process answered {reply.status}"))
            return answer
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise RackError(f"the virtual rack is not up ({error}): run 'metalyard virtual up'") from None
    except TimeoutError:
        raise RackError(f"the rack's process did not answer within {deadline:.0f} s; see {home}/daemon.log") from None
    finally:
        os.close(folder)


async def _status(home: Path) -> dict[str, Any] | None:
    """What the rack's process says of itself; None when it does not run."""
    try:
        return await _ask(home, "GET", "/status", deadline=10.0)
    except RackError:
        return None


async def _end_process(home: Path) -> None:
    """End the rack's process by its id, after making sure that the id is still its own."""
    path = home / daemon.PROCESS
    try:
        pid_text, _, started = path.read_text().strip().partition(" ")
        pid = int(pid_text)
    except (OSError, ValueError):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not started or daemon.start_time(pid) != started or _zombie(pid):
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        for _ in range(int(GONE * 10)):
            if daemon.start_time(pid) != started or _zombie(pid):
                break
            await asyncio.sleep(0.1)
    path.unlink(missing_ok=True)
    (home / daemon.SOCKET).unlink(missing_ok=True)


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (OSError, IndexError):
        return True


@contextlib.contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    """One ``up`` or ``down`` at a time; a second one is told."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "rack.lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RackError(f"another 'metalyard virtual' works on {home}: wait until it is done") from None
        yield


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Whatever a part of the rack says is wrong, as one kind of error."""
    try:
        yield
    except (host.HostError, host.CommandError, network.NetworkError, faultbook.FaultError, OSError) as error:
        raise RackError(str(error)) from error
