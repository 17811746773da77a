"""Emulates kmod's ``modprobe``, ``lsmod`` and ``modinfo`` for a node whose kernel is the host's.

A container has no modules of its own; those that its packages brought are loaded by name into a folder below /run.
Formats: kmod 30.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from metalyard.virtual.tools import node


def load(name: str) -> bool:
    """Load a module and what it needs; False when no package has brought it."""
    known = node.known_modules()
    name = name.replace("-", "_")
    if name not in known:
        return False
    folder = node.RUN / "modules"
    folder.mkdir(parents=True, exist_ok=True)
    for needed in known[name].get("depends", []):
        load(needed)
    if not (folder / name).exists():
        (folder / name).write_text(known[name].get("version", "") + "\n")
    return True


def modprobe(arguments: list[str]) -> int:
    """``modprobe [-r] [-a] [-n] [-q] NAME…``."""
    options = [a for a in arguments if a.startswith("-")]
    names = [a for a in arguments if not a.startswith("-")]
    quiet = any(o in ("-q", "--quiet") for o in options)
    dry = any(o in ("-n", "--dry-run", "--show", "--first-time-dry") for o in options)
    remove = any(o in ("-r", "--remove") for o in options)
    every = any(o in ("-a", "--all") for o in options)
    if not names:
        sys.stderr.write("modprobe: ERROR: missing parameters. See -h.\n")
        return 1
    status = 0
    # What follows the first name are parameters of the module, unless all are names.
    for name in names if every or remove else names[:1]:
        if remove:
            (node.RUN / "modules" / name.replace("-", "_")).unlink(missing_ok=True)
        elif dry:
            if name.replace("-", "_") not in node.known_modules():
                status = 1
        elif not load(name):
            status = 1
        if status and not quiet:
            sys.stderr.write(f"modprobe: FATAL: Module {name} not found in directory /lib/modules\n")
    return status


def lsmod() -> int:
    """``lsmod``."""
    print("Module                  Size  Used by")
    known = node.known_modules()
    folder = node.RUN / "modules"
    loaded = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for name in loaded:
        users = [other for other in loaded if name in known.get(other, {}).get("depends", [])]
        size = known.get(name, {}).get("size", 16384)
        print("{:<19} {:>8}  {}{}".format(name, size, len(users), " " + ",".join(users) if users else ""))
    return 0


def modinfo(arguments: list[str]) -> int:
    """``modinfo [-F FIELD] NAME``."""
    field = None
    names = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-F", "--field") and rest:
            field = rest.pop(0)
        elif not word.startswith("-"):
            names.append(word)
    status = 0
    for name in names:
        module = node.known_modules().get(name.replace("-", "_"))
        if module is None:
            sys.stderr.write(f"modinfo: ERROR: Module {name} not found.\n")
            status = 1
            continue
        rows = {
            "filename": f"/lib/modules/virtual/updates/dkms/{name}.ko",
            "version": module.get("version", ""),
            "license": module.get("license", "GPL"),
            "depends": ",".join(module.get("depends", [])),
        }
        if field is not None:
            print(rows.get(field, ""))
        else:
            for key, value in rows.items():
                print("{:<16}{}".format(key + ":", value))
    return status


def load_configured() -> int:
    """What systemd-modules-load does: load the modules that configuration files name."""
    status = 0
    for folder in ("/usr/lib/modules-load.d", "/etc/modules-load.d"):
        for path in sorted(Path(folder).glob("*.conf")):
            for line in path.read_text().splitlines():
                name = line.strip()
                if name and name[0] not in "#;" and not load(name):
                    sys.stderr.write(f"Failed to find module '{name}'\n")
                    status = 1
    return status


def boot() -> None:
    """At boot: the kernel has loaded what drives the hardware, and what the driver's packages ask for."""
    shutil.rmtree(str(node.RUN / "modules"), ignore_errors=True)
    for name, module in node.known_modules().items():
        if module.get("autoload"):
            load(name)


def main() -> int:
    """Act as the program by whose name this was started."""
    name = Path(sys.argv[0]).name
    if name == "lsmod":
        return lsmod()
    if name == "load-modules":
        return load_configured()
    if name == "modinfo":
        return modinfo(sys.argv[1:])
    return modprobe(sys.argv[1:])
