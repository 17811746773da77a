"""The test bed's apt repository: everything that nodes install, so that they need nothing from outside.

``python -m metalyard.virtual.packages --output DIR`` fills DIR with the emulated packages (:mod:`.emulated`), the real
ones of ``archive/packages.txt`` with what they depend on (fetched by name through the node image's own archive), and a
signed index. Containers of the node image read it as ``file:/opt/virtual-rack-apt``: mount DIR there, read-only; the
key is ``DIR/metalyard-virtual.asc``. ``--serve ADDRESS:PORT`` hands the same folder out by HTTP. A folder that is up
to date is left alone.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import http.server
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from metalyard.files import write_atomically
from metalyard.plan.profile import Baseline, Profile
from metalyard.virtual import debs, emulated, host, image

ARCHIVE = Path(__file__).with_name("archive")
FETCH = (ARCHIVE / "fetch.sh").read_bytes()
POOL = "pool"
KEY = "metalyard-virtual.asc"
MANIFEST = "manifest.json"
SIMULATOR = ("ibsim-utils", "libumad2sim0")
MOUNT = "/opt/virtual-rack-apt"
"""Where nodes have the repository."""


def _says(text: str) -> None:
    print(text, flush=True)


def real_packages() -> list[str]:
    """Names of the real packages, sorted."""
    lines = (ARCHIVE / "packages.txt").read_text().splitlines()
    return sorted(line.strip() for line in lines if line.strip() and not line.startswith("#"))


async def _fetch(pool: Path) -> None:
    """Download the real packages and what they depend on beyond the node image into ``pool``."""
    await host.run_podman(
        "run",
        "--rm",
        "--interactive",
        "--network=host",
        f"--env=SIMULATOR={' '.join(SIMULATOR)}",
        f"--env=OWNER={os.getuid()}:{os.getgid()}",
        f"--volume={pool}:/out",
        "--entrypoint=/bin/sh",
        image.IMAGE,
        "-s",
        "--",
        *real_packages(),
        deadline=image.BUILD_DEADLINE,
        stdin=FETCH,
    )


async def build(
    output: Path,
    profile: Profile,
    baselines: list[Baseline],
    *,
    key: Path | None = None,
    progress: Callable[[str], None] = _says,
) -> bool:
    """Fill ``output`` with the repository; returns whether anything changed. The node image is built first.

    ``key`` holds the secret key that signs the index (default: beside ``output``); it is made when absent.
    """
    await image.build(progress, profile=profile, baseline=baselines[0])
    base = image.base_digest(os.environ.get(image.BASE_VARIABLE) or None)
    repository = Repository(output, key or output.with_name(f"{output.name}-signing-key.asc"), profile, baselines, base)
    if repository.current():
        progress(f"packages: {output} is up to date")
        return False
    if repository.begin():
        progress(f"packages: fetching {len(real_packages())} packages and what they depend on")
        await _fetch(output / POOL)
    progress(f"packages: building {len(repository.packages)} emulated packages")
    repository.finish()
    return True


class Repository:
    """The folder: what it should hold, what it holds, and the steps between."""

    def __init__(self, output: Path, key: Path, profile: Profile, baselines: list[Baseline], base: str) -> None:
        self.output = output
        self.key = key
        self.packages = [package for baseline in baselines for package in emulated.gpu_packages(baseline)]
        self.packages.append(emulated.node_package(profile, baselines[0]))
        # The image decides what is missing in it, the list what is wanted.
        names = "\n".join([base, *real_packages(), *SIMULATOR]).encode() + FETCH
        self.fetched = hashlib.sha256(names).hexdigest()
        manifest = output / MANIFEST
        self.present = json.loads(manifest.read_text()) if manifest.exists() else {}

    def wanted(self) -> dict[str, object]:
        """The manifest of a folder that is up to date."""
        return {
            "fetched": self.fetched,
            "emulated": {package.filename: package.digest() for package in self.packages},
            "key": hashlib.sha256(self.key.read_bytes()).hexdigest() if self.key.exists() else "",
        }

    def current(self) -> bool:
        """Whether the folder is up to date."""
        return self.present == self.wanted() and all(
            (self.output / name).exists() for name in ("InRelease", "Packages", KEY)
        )

    def begin(self) -> bool:
        """Make the folder ready for a change; returns whether the real packages are to be fetched."""
        (self.output / POOL).mkdir(parents=True, exist_ok=True)
        (self.output / MANIFEST).unlink(missing_ok=True)
        if self.present.get("fetched") == self.fetched:
            return False
        # What an earlier image lacked would shadow what this one has.
        shutil.rmtree(self.output / POOL)
        (self.output / POOL).mkdir()
        return True

    def finish(self) -> None:
        """Build the emulated packages, index and sign; the manifest comes last."""
        own = self.output / "emulated"
        if own.exists():
            shutil.rmtree(own)
        for package in self.packages:
            debs.build(package, own)
        for path in [self.output, *self.output.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        debs.index(self.output, "Metalyard virtual rack", time.time())
        debs.sign(self.output, self.key, self.output / KEY)
        write_atomically(self.output / MANIFEST, json.dumps(self.wanted(), indent=1).encode(), mode=0o644)


def serve(folder: Path, address: str, port: int) -> None:
    """Hand the folder out by HTTP until interrupted."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer((address, port), handler) as server:
        server.serve_forever()


def main() -> int:
    """Command line: build the repository, and serve it when asked to."""
    parser = argparse.ArgumentParser(description="Build the virtual rack's apt repository.")
    parser.add_argument("--output", type=Path, required=True, help="folder to fill")
    parser.add_argument("--baseline", action="append", help="name of a packaged baseline; may be given more than once")
    parser.add_argument("--profile", default="dgx-h100", help="profile of the default hardware model")
    parser.add_argument("--serve", metavar="ADDRESS:PORT", help="then serve the folder by HTTP")
    arguments = parser.parse_args()
    try:
        profile = image.packaged(Profile, "profiles", arguments.profile)
        names = arguments.baseline or [image.DEFAULT_BASELINE]
        baselines = [image.packaged(Baseline, "baselines", name) for name in names]
        asyncio.run(build(arguments.output.resolve(), profile, baselines))
        if arguments.serve:
            address, _, port = arguments.serve.rpartition(":")
            print(f"packages: serving {arguments.output} at http://{address}:{port}/", flush=True)
            serve(arguments.output, address, int(port))
    except (host.HostError, host.CommandError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
