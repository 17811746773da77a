"""Binary packages, from a tree of files in memory through ``dpkg-deb``; and the index of a flat repository."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

from metalyard.files import write_atomically
from metalyard.virtual import host

EPOCH = 1764547200
"""Time stamp of all files in built packages: the same input gives the same bytes."""

MAINTAINER = "The Metalyard developers <metalyard@example.invalid>"


@dataclass
class Package:
    """One binary package. Paths are absolute ones on the node."""

    name: str
    version: str
    summary: str
    depends: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    programs: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    architecture: str = "all"

    @property
    def filename(self) -> str:
        """As Debian names it: without the epoch."""
        return f"{self.name}_{self.version.split(':')[-1]}_{self.architecture}.deb"

    def control(self) -> str:
        """The control file."""
        rows = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": MAINTAINER,
            "Section": "misc",
            "Priority": "optional",
            **({"Depends": ", ".join(self.depends)} if self.depends else {}),
            **self.fields,
            "Description": self.summary,
        }
        return "".join(f"{key}: {value}\n" for key, value in rows.items())

    def digest(self) -> str:
        """SHA-256 over all that the package holds."""
        total = hashlib.sha256(self.control().encode())
        texts = {name: text.encode() for name, text in {**self.links, **self.scripts}.items()}
        for name, data in sorted({**self.files, **self.programs, **texts}.items()):
            total.update(f"\0{name}\0{len(data)}\0".encode() + data)
        return total.hexdigest()


def build(package: Package, folder: Path) -> Path:
    """Write the package into a folder; returns its path. Raises :class:`~metalyard.virtual.host.CommandError`."""
    target = folder / package.filename
    with tempfile.TemporaryDirectory(prefix="metalyard-deb-") as work:
        root = Path(work) / "root"
        control = root / "DEBIAN"
        control.mkdir(parents=True, mode=0o755)
        root.chmod(0o755)
        (control / "control").write_text(package.control())
        configuration = [name for name in package.files if name.startswith("/etc/")]
        if configuration:
            (control / "conffiles").write_text("".join(f"{name}\n" for name in sorted(configuration)))
        for name, script in package.scripts.items():
            (control / name).write_text(script)
            (control / name).chmod(0o755)
        for contents, mode in ((package.files, 0o644), (package.programs, 0o755)):
            for name, content in contents.items():
                path = root / name.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(mode)
        for name, destination in package.links.items():
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(destination)
        for path in [root, *root.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
            os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
        built = Path(work) / package.filename
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(root), str(built)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
        if done.returncode != 0:
            raise host.CommandError(f"dpkg-deb could not build {package.name}: {done.stderr.strip()}")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(target, built.read_bytes(), mode=0o644)
    return target


def packages_index(folder: Path) -> bytes:
    """The ``Packages`` file of a flat repository: every package below ``folder``, with its sums."""
    stanzas = []
    for path in sorted(folder.rglob("*.deb")):
        control = subprocess.run(
            ["dpkg-deb", "--field", str(path)], capture_output=True, text=True, check=False, timeout=60
        )
        if control.returncode != 0:
            raise host.CommandError(f"{path} is no package: {control.stderr.strip()}")
        data = path.read_bytes()
        stanzas.append(
            control.stdout.rstrip("\n")
            + f"\nFilename: ./{path.relative_to(folder)}\nSize: {len(data)}\n"
            + f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
        )
    return "\n".join(stanzas).encode()


def release(folder: Path, label: str, date: float) -> bytes:
    """The ``Release`` file over ``Packages`` and ``Packages.gz`` in ``folder``."""
    rows = [
        f"Origin: {label}",
        f"Label: {label}",
        "Suite: stable",
        "Codename: virtual",
        f"Date: {formatdate(date, usegmt=True)}".replace("GMT", "UTC"),
        "Architectures: amd64 all",
        "Components: main",
        "SHA256:",
    ]
    for name in ("Packages", "Packages.gz"):
        data = (folder / name).read_bytes()
        rows.append(f" {hashlib.sha256(data).hexdigest()} {len(data):>16} {name}")
    return ("\n".join(rows) + "\n").encode()


def index(folder: Path, label: str, date: float) -> None:
    """Write ``Packages``, ``Packages.gz`` and ``Release``."""
    listing = packages_index(folder)
    write_atomically(folder / "Packages", listing, mode=0o644)
    write_atomically(folder / "Packages.gz", gzip.compress(listing, mtime=0), mode=0o644)
    write_atomically(folder / "Release", release(folder, label, date), mode=0o644)


def _gpg(home: str, *arguments: str, stdin: bytes | None = None) -> bytes:
    command = ["gpg", "--homedir", home, "--batch", "--yes", "--no-tty", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=120)
    if done.returncode != 0:
        raise host.CommandError(f"gpg {arguments[0]}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout


def sign(folder: Path, key: Path, public: Path) -> None:
    """Sign ``Release`` (``InRelease``, ``Release.gpg``) by the secret key in ``key``, which is made when absent.

    ``public`` gets the public key, armoured. The key has no passphrase: it signs a test bed.
    """
    # A socket's path may hold 107 characters only, which a home below a build folder exceeds.
    with tempfile.TemporaryDirectory(prefix="mygpg-", dir="/tmp") as home:
        try:
            if key.exists():
                _gpg(home, "--import", stdin=key.read_bytes())
            else:
                identity = "Metalyard virtual rack <metalyard@example.invalid>"
                _gpg(home, "--passphrase", "", "--quick-generate-key", identity, "rsa3072", "sign", "never")
                write_atomically(key, _gpg(home, "--armor", "--export-secret-keys"), mode=0o600)
            write_atomically(public, _gpg(home, "--armor", "--export"), mode=0o644)
            text = (folder / "Release").read_bytes()
            write_atomically(folder / "InRelease", _gpg(home, "--clearsign", stdin=text), mode=0o644)
            write_atomically(folder / "Release.gpg", _gpg(home, "--armor", "--detach-sign", stdin=text), mode=0o644)
        finally:
            subprocess.run(
                ["gpgconf", "--homedir", home, "--kill", "all"], capture_output=True, check=False, timeout=30
            )
