"""The rack's service containers: the fabric's host with simulator and subnet manager, and the image registry."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from metalyard.files import write_atomically
from metalyard.plan.model import HostEntry, SitePlan
from metalyard.virtual import debs, fabric, host, image, nodes, packages, timeserver
from metalyard.virtual.bmc.tls import Authority
from metalyard.virtual.machine import BootAction

SPEC_LABEL = "metalyard.spec"
"""Digest of what a service container was made from: another one means that it is made anew."""

SETTLE = 180.0
"""Seconds that a service may take to answer."""

FABRIC_PACKAGES = ("ibsim-utils", "libumad2sim0", "opensm", "infiniband-diags")

FABRIC_RESTART = """\
#!/bin/sh
# Starts simulator and subnet manager on the present topology and waits until the subnet is up.
set -e
systemctl stop opensm-virtual ibsim
: >/var/log/opensm-virtual.log
systemctl start ibsim opensm-virtual
for _ in $(seq 300); do
  if grep -q 'SUBNET UP' /var/log/opensm-virtual.log; then exit 0; fi
  sleep 0.1
done
echo "the subnet did not come up: $(tail -n 3 /var/log/opensm-virtual.log)" >&2
exit 1
"""


def fabric_host(plan: SitePlan) -> HostEntry | None:
    """The host on which the fabric runs: the first one that the plan reads it from; None where it reads none."""
    for entry in plan.hosts:
        if entry.name in plan.fabric.hosts:
            return entry
    return None


async def _up_to_date(name: str, spec: str) -> bool:
    wanted = f'{{{{.State.Running}}}} {{{{index .Config.Labels "{SPEC_LABEL}"}}}}'
    found = await host.run_podman("inspect", f"--format={wanted}", name, check=False)
    return found.stdout.strip() == f"true {spec}"


async def _image_id() -> str:
    return (await host.run_podman("image", "inspect", "--format={{.Id}}", image.IMAGE)).stdout.strip()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class FabricService:
    """Simulator and subnet manager in a container of the node image, reached by the plan's SSH user."""

    def __init__(self, plan: SitePlan, home: Path, entry: HostEntry, prefix: int, bridge: str) -> None:
        self.plan = plan
        self.entry = entry
        self.folder = home / "fabric"
        self.repository = home / "apt"
        self.seed = home / "seeds" / entry.name
        self.address = f"{entry.address}/{prefix}"
        self.bridge = bridge

    def write_topology(self, cables: Iterable[fabric.PhysicalCable]) -> bool:
        """Bring the topology file to these cables; returns whether it changed."""
        text = fabric.topology(self.plan, cables).encode()
        path = self.folder / "topology.net"
        if path.exists() and path.read_bytes() == text:
            return False
        write_atomically(path, text, mode=0o644)
        self.folder.chmod(0o755)
        return True

    async def restart(self) -> None:
        """Run the fabric on the present topology."""
        await host.run_podman("exec", self.entry.name, "/usr/local/sbin/restart-fabric", deadline=SETTLE)

    def _prepare(self, public_key: str) -> str:
        """Write what the container gets; returns its digest."""
        files = dict(fabric.host_files(self.plan))
        files["/usr/local/sbin/restart-fabric"] = (FABRIC_RESTART, 0o755)
        root = self.folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        for name, (text, mode) in files.items():
            target = root / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            target.write_text(text)
            target.chmod(mode)
        user = {
            "name": self.plan.fabric.sm_user,
            "shell": "/bin/bash",
            "sudo": ["ALL=(ALL) NOPASSWD:ALL"],
            "lock_passwd": True,
            "ssh_authorized_keys": [public_key],
        }
        data = b"#cloud-config\n" + yaml.safe_dump({"users": [user]}).encode()
        action = BootAction("deploy", user_data=data, hostname=self.entry.name, instance_id=self.entry.name)
        nodes.write_seed(self.seed, action, self.entry.name)
        return _digest(data.decode(), json.dumps({name: list(value) for name, value in sorted(files.items())}))

    async def up(self, public_key: str, cables: Iterable[fabric.PhysicalCable], say: Callable[[str], None]) -> None:
        """Bring it up on these cables; what runs as it should is left alone."""
        name = self.entry.name
        changed = self.write_topology(cables)
        spec = _digest(self._prepare(public_key), await _image_id(), self.address, self.bridge)
        if await _up_to_date(name, spec):
            if changed:
                await self.restart()
            return
        say(f"fabric: starting {name} with simulator and subnet manager")
        await host.run_podman("rm", "--force", "--ignore", "-t", "0", name)
        place = nodes.Place(
            self.plan.site, name, "", self.address, self.folder, self.repository, self.seed, self.bridge
        )
        command = nodes.container_arguments(place, self.address)
        await host.run_podman(command[0], f"--label={SPEC_LABEL}={spec}", *command[1:])
        await host.run_podman("start", name)
        wait = "cloud-init status --wait >/dev/null 2>&1; cloud-init status --long"
        done = await host.run_podman("exec", name, "sh", "-c", wait, deadline=SETTLE, check=False)
        if "status: done" not in done.stdout:
            raise host.CommandError(f"{name}: {nodes.cloud_init_failure(done.stdout or done.stderr)}")
        # opensm's own unit looks for real adapters.
        install = (
            "systemctl mask --quiet opensm.service && apt-get update -qq && "
            f"apt-get install --yes -qq {' '.join(FABRIC_PACKAGES)} && cp -r {nodes.RACK_MOUNT}/root/. / && "
            "systemctl daemon-reload && systemctl enable --quiet ibsim opensm-virtual"
        )
        await host.run_podman("exec", name, "sh", "-c", install, deadline=SETTLE)
        await self.restart()


CLOCK = Path(timeserver.__file__)
CLOCK_TEXT = CLOCK.read_text(encoding="utf-8")


async def clock(plan: SitePlan, address: str, say: Callable[[str], None]) -> None:
    """The rack's time server on its own address; what runs as it should is left alone.

    A machine that serves time to others already keeps its port: it answers the rack's nodes as well.
    """
    name = f"{plan.site}-clock"
    spec = _digest(CLOCK_TEXT, address, await _image_id())
    if await _up_to_date(name, spec):
        return
    say(f"clock: starting on {address}")
    await host.run_podman("rm", "--force", "--ignore", "-t", "0", name)
    await host.run_podman(
        "run",
        "--detach",
        f"--name={name}",
        f"--label={nodes.RACK_LABEL}={plan.site}",
        f"--label={SPEC_LABEL}={spec}",
        "--network=host",
        f"--volume={CLOCK}:/timeserver.py:ro",
        image.IMAGE,
        "python3",
        "/timeserver.py",
        address,
    )
    await asyncio.sleep(1)
    if not await _up_to_date(name, spec):
        said = await host.run_podman("logs", name, check=False)
        say(f"warning: no time server: {(said.stderr or said.stdout).strip() or 'it ended at once'}")


REGISTRY_CONFIGURATION: dict[str, Any] = {
    "version": 0.1,
    "log": {"level": "warn"},
    "storage": {"filesystem": {"rootdirectory": "/registry/data"}, "delete": {"enabled": True}},
}

BURN_IN = """\
#!/bin/sh
# The image that stands for a site's burn-in: it starts, says so, and ends.
echo "burn-in $(cat /etc/burn-in-version): ok"
"""


class RegistryService:
    """Debian's docker-registry with TLS on the rack's own address, filled with the images that the plan preloads."""

    def __init__(self, plan: SitePlan, home: Path, address: str, port: int) -> None:
        self.plan = plan
        self.name = f"{plan.site}-registry"
        self.folder = home / "registry"
        self.pool = home / "apt" / packages.POOL
        self.address, self.port = address, port

    def _prepare(self, authority: Authority) -> str:
        """Unpack the registry and write its configuration; returns the digest of both."""
        archives = sorted(self.pool.glob("docker-registry_*.deb"))
        if not archives:
            raise host.CommandError(f"no docker-registry package in {self.pool}: run 'metalyard virtual up' again")
        root = self.folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        _unpack(archives[-1], root)
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        authority.issue(
            "registry", [self.address, "registry.example"], self.folder / "tls.pem", self.folder / "tls.key"
        )
        trust = self.folder / "trust" / "ca.crt"
        write_atomically(trust, authority.path.read_bytes(), mode=0o644)
        configuration = {
            **REGISTRY_CONFIGURATION,
            "http": {
                "addr": f"{self.address}:{self.port}",
                "tls": {"certificate": "/registry/tls.pem", "key": "/registry/tls.key"},
            },
        }
        text = yaml.safe_dump(configuration, sort_keys=True)
        write_atomically(self.folder / "config.yml", text.encode(), mode=0o644)
        return _digest(text, archives[-1].name, (self.folder / "tls.pem").read_text())

    async def up(self, authority: Authority, say: Callable[[str], None]) -> None:
        """Bring it up and push what is missing; what runs as it should is left alone."""
        spec = _digest(self._prepare(authority), await _image_id())
        if not await _up_to_date(self.name, spec):
            say(f"registry: starting on {self.address}:{self.port}")
            await host.run_podman("rm", "--force", "--ignore", "-t", "0", self.name)
            await host.run_podman(
                "run",
                "--detach",
                f"--name={self.name}",
                f"--label={nodes.RACK_LABEL}={self.plan.site}",
                f"--label={SPEC_LABEL}={spec}",
                "--network=host",
                "--log-driver=none",
                # What it writes belongs to who runs the rack.
                f"--user={os.getuid()}:{os.getgid()}",
                f"--volume={self.folder}:/registry",
                image.IMAGE,
                "/registry/root/usr/bin/docker-registry",
                "serve",
                "/registry/config.yml",
            )
        for reference in self.plan.images.preload:
            await self._push(reference, say)

    async def _push(self, reference: str, say: Callable[[str], None]) -> None:
        """Push a small image under the reference's path and tag, unless it is there."""
        path, tag = _path_and_tag(reference)
        target = f"{self.address}:{self.port}/{path}:{tag}"
        trust = f"--cert-dir={self.folder / 'trust'}"
        marker = self.folder / "data" / "docker/registry/v2/repositories" / path / "_manifests/tags" / tag
        if marker.exists():
            return
        say(f"registry: pushing {path}:{tag}")
        local = f"localhost/{path}:{tag}"
        archive = self.folder / "image.tar"
        _image_archive(self.pool, archive, tag)
        await host.run_podman("import", "--quiet", "--change", 'CMD ["/burn-in"]', str(archive), local)
        try:
            await _listening(self.address, self.port)
            await host.run_podman("push", "--quiet", trust, local, f"docker://{target}", deadline=SETTLE)
        finally:
            await host.run_podman("rmi", local, check=False)
            archive.unlink(missing_ok=True)


async def _listening(address: str, port: int) -> None:
    """Wait until a port takes connections; :class:`~metalyard.virtual.host.CommandError` after :data:`SETTLE`."""
    for _ in range(int(SETTLE * 5)):
        try:
            _, writer = await asyncio.open_connection(address, port)
        except OSError:
            await asyncio.sleep(0.2)
            continue
        writer.close()
        await writer.wait_closed()
        return
    raise host.CommandError(f"nothing listens on {address}:{port} after {SETTLE:.0f} s")


def _path_and_tag(reference: str) -> tuple[str, str]:
    """``registry.example/burn-in:1`` as ``burn-in`` and ``1``: what a mirror is asked for."""
    name, _, tag = reference.rpartition(":")
    first, slash, rest = name.partition("/")
    return (rest if slash and ("." in first or ":" in first or first == "localhost") else name), tag


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["dpkg-deb", "--extract", str(archive), str(folder)], capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        raise host.CommandError(f"dpkg-deb could not unpack {archive.name}: {done.stderr.strip()}")


def _image_archive(pool: Path, target: Path, version: str) -> None:
    """A root file system with busybox and the program that the image runs."""
    archives = sorted(pool.glob("busybox-static_*.deb"))
    if not archives:
        raise host.CommandError(f"no busybox-static package in {pool}: run 'metalyard virtual up' again")
    work = target.with_name("busybox")
    shutil.rmtree(work, ignore_errors=True)
    _unpack(archives[-1], work)
    busybox = next(path for path in (work / "bin/busybox", work / "usr/bin/busybox") if path.exists())
    with tarfile.open(target, "w") as tar:
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for name in ("sh", "cat", "echo", "ls"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname, link.mtime = tarfile.SYMTYPE, "busybox", debs.EPOCH
            tar.addfile(link)
        _add(tar, "burn-in", BURN_IN.encode(), 0o755)
        _add(tar, "etc/burn-in-version", f"{version}\n".encode(), 0o644)
    shutil.rmtree(work, ignore_errors=True)


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), mode, debs.EPOCH
    tar.addfile(entry, io.BytesIO(data))
