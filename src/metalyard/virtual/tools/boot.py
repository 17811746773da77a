"""Runs early at a virtual node's boot: gives it a kernel of its own, as far as a container can have one.

- ``/sys/class/infiniband`` shows the model's adapters (a container can't add a folder to sysfs, so ``/sys/class`` is
  rebuilt from the real one beside them).
- ``/proc/sys/{vm,fs,kernel}`` are copies: a node's settings must not become those of the machine the rack runs on.
- Kernel modules that packages have brought count as loaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from metalyard.virtual.tools import modules, node

LIVE = ("kernel/random", "kernel/hostname", "kernel/domainname", "kernel/ns_last_pid", "kernel/pty", "fs/binfmt_misc")
"""Settings that the kernel keeps for each container, or that are no settings: bound from the real ones."""


def mount(*arguments: str) -> None:
    """Call mount(8); raises ``CalledProcessError``."""
    subprocess.run(["mount", *arguments], check=True, stdin=subprocess.DEVNULL)


def infiniband(work: Path) -> None:
    """Show the model's adapters below /sys/class."""
    source = node.folder() / "sysfs-infiniband"
    target = Path("/sys/class")
    if not source.is_dir() or (target / "infiniband" / ".virtual").exists() or (work / "class").exists():
        return
    classes = work / "class"
    classes.mkdir(parents=True)
    for name in sorted(os.listdir(str(target))):
        if name == "infiniband":
            continue
        (classes / name).mkdir()
        mount("--bind", str(target / name), str(classes / name))
    (classes / "infiniband").mkdir(exist_ok=True)
    mount("--bind", str(source), str(classes / "infiniband"))
    mount("--rbind", str(classes), str(target))


def settings(work: Path) -> None:
    """Put copies in the place of the kernel's settings."""
    if (work / "sys").exists():
        return
    for part in ("vm", "fs", "kernel"):
        real = Path("/proc/sys", part)
        copy = work / "sys" / part
        for path in real.rglob("*"):
            relative = f"{part}/{path.relative_to(real)}"
            if any(relative == name or relative.startswith(name + "/") for name in LIVE):
                continue
            target = copy / path.relative_to(real)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.write_bytes(path.read_bytes())
            except OSError:
                # Write-only ones (vm/drop_caches) exist and hold nothing.
                target.write_bytes(b"")
            shutil.copymode(str(path), str(target))
            target.chmod(target.stat().st_mode | 0o200)
        for name in LIVE:
            if not name.startswith(part + "/"):
                continue
            live = Path("/proc/sys", name)
            if not live.exists():
                continue
            target = work / "sys" / name
            if live.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.write_bytes(b"")
            mount("--bind", str(live), str(target))
        mount("--rbind", str(copy), str(real))


def main() -> int:
    """Do all of it; what fails is said in the journal, and the node boots all the same."""
    work = node.RUN
    work.mkdir(parents=True, exist_ok=True)
    status = 0
    for step in (infiniband, settings):
        try:
            step(work)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"virtual node: {step.__name__}: {error}\n")
            status = 1
    modules.boot()
    return status


if __name__ == "__main__":
    sys.exit(main())
