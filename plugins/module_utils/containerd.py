"""Images of a containerd through its tool ``ctr``: what is there, and how it gets there. Standard library only.

``ctr`` promises no stable output, so that as little as possible is read of it: one line of ``images check``.
Tried with containerd 1.6; 1.7 and 2.0 print the same columns.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import NamedTuple

READ_TIMEOUT = 60.0
"""Seconds for a command that only asks containerd; a runtime that takes longer hangs."""

REFERENCE = re.compile(
    r"^(?P<registry>(?:[A-Za-z0-9-]+\.)[A-Za-z0-9.-]*(?::[0-9]+)?|[A-Za-z0-9-]+:[0-9]+|localhost)"
    r"/(?P<path>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?$"
)
"""A reference as containerd takes it: with its registry, and with a tag, a digest or both."""

DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")

ROW = re.compile(r"^(?P<name>\S+)\s+\S+\s+(?P<digest>sha256:[0-9a-f]{64})\s+(?P<status>\S+).*\s(?P<unpacked>\S+)\s*$")
"""A line of ``ctr images check``: REF TYPE DIGEST STATUS SIZE UNPACKED; status and size hold blanks."""

ADVICE = (
    ("certificate signed by unknown authority", "Give the authority of the mirror's certificate."),
    ("x509:", "Look at the mirror's certificate: its names, its dates, and the node's clock."),
    ("no such host", "Look at the node's name resolution, and whether the registry has a mirror in certs.d."),
    ("connection refused", "Look whether the mirror runs, and at its port."),
    ("i/o timeout", "Look whether the node reaches the mirror."),
    ("network is unreachable", "Look whether the registry has a mirror in certs.d, and at the node's routes."),
    ("401", "The registry wants a login, which the mirror has to bring."),
    ("403", "The registry refuses this image to the mirror's login."),
    ("snapshotter not loaded", "Choose a snapshotter that 'ctr plugins list' shows as ok."),
    ("no space left", "Make room below containerd's root."),
    ("not found", "Look whether the mirror has the image and the tag is right."),
    ("containerd.sock", "Look whether containerd runs on the node."),
)
"""Part of what ``ctr`` says to the next step; the first that is found counts."""


class ContainerdError(Exception):
    """What containerd refused; the message names image, cause and next step."""


class Image(NamedTuple):
    """An image as containerd has it."""

    name: str
    digest: str
    complete: bool
    """All its content is there."""
    unpacked: bool
    """Its layers are a file system of the snapshotter that was asked for."""

    @property
    def ready(self) -> bool:
        """Whether a container can start from it at once."""
        return self.complete and self.unpacked


def check_reference(name: str) -> str | None:
    """The digest in the reference, if it has one; raises :class:`ContainerdError` for one that can't be pulled."""
    found = REFERENCE.match(name)
    if found is None or not (found.group("tag") or found.group("digest")):
        raise ContainerdError(
            "the image reference '{0}' can't be pulled: expected registry, path, and a tag or digest, "
            "such as registry.example/burn-in:1. Write it out in full".format(name)
        )
    return found.group("digest")


def parse_check(text: str, name: str) -> Image | None:
    """The image of that name in the output of ``ctr images check``; None when it is not there."""
    for line in text.splitlines():
        row = ROW.match(line)
        if row and row.group("name") == name:
            return Image(name, row.group("digest"), row.group("status") == "complete", row.group("unpacked") == "true")
    return None


def advice(text: str) -> str:
    """The next step for what ``ctr`` said."""
    for part, step in ADVICE:
        if part in text:
            return step
    return "Look into the journal of containerd on the node."


def last_words(text: str) -> str:
    """The line that says why, without the trail of attempts before it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


def run(argv: list[str], timeout: float) -> tuple[int, str, str]:
    """Run a command; exit status, output and errors. Raises :class:`ContainerdError` after ``timeout`` seconds."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=dict(os.environ, LC_ALL="C"),
        )
    except OSError as error:
        raise ContainerdError(
            "{0} can't be started: {1}. Install containerd on the node".format(argv[0], error.strerror)
        ) from None
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise ContainerdError(
            "not done after {0:g} s. Look whether containerd and the mirror answer, or allow more time".format(timeout)
        ) from None
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


class Containerd:
    """One namespace of a containerd."""

    def __init__(self, executable: str, address: str, namespace: str, snapshotter: str) -> None:
        self.base = [executable, "--address", address, "--namespace", namespace]
        self.snapshotter = ["--snapshotter", snapshotter] if snapshotter else []

    def find(self, name: str) -> Image | None:
        """The image as it is here; None when it is not. Raises :class:`ContainerdError`."""
        # In quotes, since a digest's colon has a meaning in containerd's filters.
        asked = [*self.base, "images", "check", *self.snapshotter, 'name=="{0}"'.format(name)]
        status, out, err = self._run(asked, READ_TIMEOUT, "asking containerd for {0}".format(name))
        if status != 0:
            raise ContainerdError(
                "containerd can't be asked for {0}: {1}. {2}".format(name, last_words(err), advice(err))
            )
        return parse_check(out, name)

    def pull(self, name: str, hosts_dir: str, platform: str, timeout: float) -> None:
        """Fetch an image and unpack it, within ``timeout`` seconds. Raises :class:`ContainerdError`."""
        argv = [*self.base, "images", "pull", *self.snapshotter]
        argv += ["--hosts-dir", hosts_dir] if hosts_dir else []
        argv += ["--platform", platform] if platform else []
        status, _out, err = self._run([*argv, name], timeout, "pulling {0}".format(name))
        if status != 0:
            raise ContainerdError("{0} can't be pulled: {1}. {2}".format(name, last_words(err), advice(err)))

    def remove(self, name: str) -> None:
        """Forget an image; its content goes with the last name of it. Raises :class:`ContainerdError`."""
        status, _out, err = self._run(
            [*self.base, "images", "remove", "--sync", name], READ_TIMEOUT, "removing " + name
        )
        if status != 0:
            raise ContainerdError("{0} can't be removed: {1}. {2}".format(name, last_words(err), advice(err)))

    @staticmethod
    def _run(argv: list[str], timeout: float, what: str) -> tuple[int, str, str]:
        try:
            return run(argv, timeout)
        except ContainerdError as error:
            raise ContainerdError("{0}: {1}".format(what, error)) from None
