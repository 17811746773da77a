"""The node image: what a machine is after MAAS has deployed Debian on it, as a container image with systemd.

``python -m metalyard.virtual.image`` builds ``localhost/metalyard-node:bookworm`` with mmdebstrap from the archive that
this machine's own apt uses. ``METALYARD_NODE_BASE_IMAGE`` names a public Debian or Ubuntu image to start from instead,
where there is no mmdebstrap. A label holds the digest of the recipe, so that an image that is up to date is left alone.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TypeVar

import yaml

from metalyard.plan.model import Strict
from metalyard.plan.profile import Baseline, Profile
from metalyard.virtual import debs, emulated, host

IMAGE = "localhost/metalyard-node:bookworm"
BASE = "localhost/metalyard-base:bookworm"
SUITE = "bookworm"
LABEL = "org.metalyard.recipe"
BASE_VARIABLE = "METALYARD_NODE_BASE_IMAGE"
RECIPE = Path(__file__).with_name("node")
LOCK = Path(tempfile.gettempdir()) / f"metalyard-image-{os.geteuid()}.lock"
BUILD_DEADLINE = 1800.0
"""Seconds; a slow archive needs minutes."""

DEFAULT_PROFILE = "dgx-h100"
DEFAULT_BASELINE = "2026.11-h100"
"""What containers outside a rack look like."""

Kind = TypeVar("Kind", bound=Strict)

APT_SETTINGS = (
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
)
"""The host's way to its archive, which the image build goes as well."""

CONTAINERFILE = """\
# Written by metalyard.virtual.image
ARG BASE
FROM ${BASE}
COPY . /tmp/metalyard-node
RUN sh /tmp/metalyard-node/setup.sh && rm -rf /tmp/metalyard-node
STOPSIGNAL SIGRTMIN+3
CMD ["/sbin/init"]
"""


def _says(text: str) -> None:
    print(text, flush=True)


def packaged(kind: type[Kind], folder: str, name: str) -> Kind:
    """A profile or baseline that the package brings; raises ``OSError`` or ``ValueError``."""
    path = resources.files("metalyard.plan") / folder / f"{name}.yml"
    return kind.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def recipe_files() -> dict[str, bytes]:
    """The recipe's files by path relative to the build context."""
    return {
        str(path.relative_to(RECIPE)): path.read_bytes()
        for path in sorted(RECIPE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def digest(base: str | None, package: debs.Package) -> str:
    """SHA-256 over everything that decides what the image holds, the base image's name included."""
    total = hashlib.sha256()
    parts = {
        **recipe_files(),
        package.filename: package.digest().encode(),
        "Containerfile": CONTAINERFILE.encode(),
        "base": (base or f"mmdebstrap {SUITE}").encode(),
    }
    for name, content in sorted(parts.items()):
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def base_digest(base: str | None) -> str:
    """SHA-256 over what decides the packages that the image starts with."""
    listed = base or f"mmdebstrap {SUITE}\n" + (RECIPE / "packages.txt").read_text()
    return hashlib.sha256(listed.encode()).hexdigest()


async def label(image: str) -> str | None:
    """The recipe digest an image was built from; None when there is no such image or no label."""
    result = await host.run_podman(
        "image", "inspect", "--format", f'{{{{index .Labels "{LABEL}"}}}}', image, check=False
    )
    return result.stdout.strip() or None if result.status == 0 else None


def archive_sources() -> list[Path]:
    """The host's apt sources of Debian's own archive, where the host is the release that the image is."""
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    if f"VERSION_CODENAME={SUITE}" not in release or "ID=debian" not in release:
        return []
    candidates = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
    return [path for path in candidates if path.exists() and "main" in path.read_text()][:1]


def apt_settings() -> list[str]:
    """The host's apt settings that decide how its archive is reached, as ``Name "value";`` lines."""
    if shutil.which("apt-config") is None:
        return []
    lines = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout.splitlines()
    return [line for line in lines if line.split(" ")[0] in APT_SETTINGS and not line.endswith('"";')]


async def _bootstrap(work: Path, progress: Callable[[str], None]) -> str:
    """Make the base image with mmdebstrap, unless it is there already; returns its name."""
    if await label(BASE) == base_digest(None):
        return BASE
    packages = ",".join((RECIPE / "packages.txt").read_text().split())
    archive = work / "base.tar"
    command = [
        *host.sudo(),
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        f"--include={packages}",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        '--aptopt=Apt::Install-Recommends "false"',
        *(f"--aptopt={line.removesuffix(';')}" for line in apt_settings()),
        SUITE,
        str(archive),
        *(str(path) for path in archive_sources()),
    ]
    progress("node image: fetching and unpacking Debian (a minute or two)")
    await host.run(command, deadline=BUILD_DEADLINE)
    change = f"LABEL {LABEL}={base_digest(None)}"
    await host.run_podman("import", "--quiet", "--change", change, str(archive), BASE, deadline=BUILD_DEADLINE)
    return BASE


async def build(
    progress: Callable[[str], None] = _says,
    *,
    profile: Profile | None = None,
    baseline: Baseline | None = None,
    force: bool = False,
) -> bool:
    """Build the node image unless it is up to date; returns whether it was built.

    Raises :class:`~metalyard.virtual.host.HostError` or :class:`~metalyard.virtual.host.CommandError`.
    """
    host.prepare(progress)
    base = os.environ.get(BASE_VARIABLE) or None
    package = emulated.node_package(
        profile or packaged(Profile, "profiles", DEFAULT_PROFILE),
        baseline or packaged(Baseline, "baselines", DEFAULT_BASELINE),
    )
    with LOCK.open("w") as stream:
        # Two builds at once would each do all of the work.
        await asyncio.to_thread(fcntl.flock, stream, fcntl.LOCK_EX)
        return await _build(progress, base, package, force)


async def _build(progress: Callable[[str], None], base: str | None, package: debs.Package, force: bool) -> bool:
    wanted = digest(base, package)
    if not force and await label(IMAGE) == wanted:
        progress(f"node image: {IMAGE} is up to date")
        return False
    with tempfile.TemporaryDirectory(prefix="metalyard-image-") as folder:
        work = Path(folder)
        context = work / "context"
        for name, content in recipe_files().items():
            target = context / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        debs.build(package, context)
        containerfile = work / "Containerfile"
        containerfile.write_text(CONTAINERFILE)
        source = base or await _bootstrap(work, progress)
        progress("node image: setting it up as a deployed machine")
        await host.run_podman(
            "build",
            "--quiet",
            "--network=host",
            "--squash",
            "--build-arg",
            f"BASE={source}",
            "--label",
            f"{LABEL}={wanted}",
            "--tag",
            IMAGE,
            "--file",
            str(containerfile),
            str(context),
            deadline=BUILD_DEADLINE,
        )
    # Former images that no container uses; the base stays: a change of the emulated tools then costs seconds.
    await host.run_podman("image", "prune", "--force", f"--filter=label={LABEL}", check=False)
    progress(f"node image: built {IMAGE}")
    return True


def main() -> int:
    """Command line: build the image; exit status 1 with a reason when it can't be."""
    parser = argparse.ArgumentParser(description="Build the virtual rack's node image.")
    parser.add_argument("--force", action="store_true", help="build it again even when it is up to date")
    arguments = parser.parse_args()
    try:
        asyncio.run(build(force=arguments.force))
    except (host.HostError, host.CommandError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
