"""Evidence: what was read off a node, raw; collected once, judged many times.

A document is JSON: ``{"format": 1, "kind": "os"|"bmc"|"fabric", "node": …, "collected_at": ISO 8601 UTC,
"collector": version, "probes": {name: probe}, "digest": sha256}`` where a probe is ``{"command": [...],
"exit_status": int|null, "duration": seconds, "stdout": text, "stdout_bytes": int, "stdout_sha256": hex,
"stderr": text, "error": null|"missing"|"timeout"|"truncated"|text}``. ``digest`` is the SHA-256 of the canonical JSON
of everything else, so that a document cut or changed anywhere is refused; length and digest of each output are of the
bytes as they were read, so that an output cut before the document was sealed is not used either: closed on doubt.

The collector on the node (``plugins/module_utils/evidence_collector.py``) writes the same format with the standard
library alone; a test holds the two against each other.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

FORMAT = 1
LARGEST = 512 * 1024 * 1024
"""Bytes of a document, unpacked: a node that sends more is broken or hostile."""


class EvidenceError(ValueError):
    """The evidence can't be trusted: cut, changed, or of another format."""


@dataclass(frozen=True)
class Probe:
    """One command's outcome, or one file's content."""

    name: str
    command: tuple[str, ...]
    exit_status: int | None
    stdout: str
    stderr: str = ""
    duration: float = 0.0
    error: str | None = None

    @property
    def answered(self) -> bool:
        """Whether the command ran to its end and its whole output is here, whatever its exit status."""
        return self.error is None and self.exit_status is not None

    @property
    def usable(self) -> bool:
        """Whether the command ran to its end, succeeded, and its whole output is here."""
        return self.error is None and self.exit_status == 0


@dataclass(frozen=True)
class Evidence:
    """One document, checked."""

    kind: str
    node: str
    collected_at: str
    collector: str
    probes: Mapping[str, Probe]
    digest: str


def canonical(document: Mapping[str, Any]) -> bytes:
    """The bytes whose SHA-256 is the document's digest: sorted keys, no spaces, without ``digest`` itself."""
    body = {key: value for key, value in document.items() if key != "digest"}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its digest."""
    return {**document, "digest": hashlib.sha256(canonical(document)).hexdigest()}


def record(
    command: Iterable[str],
    exit_status: int | None,
    stdout: bytes,
    *,
    stderr: bytes = b"",
    duration: float = 0.0,
    error: str | None = None,
) -> dict[str, Any]:
    """One probe's record. Bytes of ``stdout`` that are not UTF-8 are kept as lone surrogates."""
    return {
        "command": list(command),
        "exit_status": exit_status,
        "duration": round(duration, 3),
        "stdout": stdout.decode("utf-8", "surrogateescape"),
        "stdout_bytes": len(stdout),
        "stdout_sha256": hashlib.sha256(stdout).hexdigest(),
        "stderr": stderr.decode("utf-8", "replace"),
        "error": error,
    }


def document(
    kind: str, node: str, collected_at: datetime, collector: str, probes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """A sealed document of probe records (see :func:`record`); ``collected_at`` has a time zone."""
    return seal(
        {
            "format": FORMAT,
            "kind": kind,
            "node": node,
            "collected_at": collected_at.astimezone(UTC).isoformat(timespec="seconds"),
            "collector": collector,
            "probes": {name: dict(probe) for name, probe in probes.items()},
        }
    )


def pack(sealed: Mapping[str, Any]) -> bytes:
    """A sealed document as it is stored: gzip-compressed JSON, the same bytes for the same document."""
    text = json.dumps(sealed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return gzip.compress(text.encode(), mtime=0)


def bmc_document(node: str, facts: Mapping[str, Any], collected_at: datetime) -> dict[str, Any]:
    """What a BMC said of its machine (the ``facts`` of ``bmc_discover``), as evidence of kind ``bmc``."""
    stdout = json.dumps(facts, sort_keys=True, indent=1).encode()
    probe = record(("metalyard", "bmc_discover"), 0, stdout)
    return document("bmc", node, collected_at, "controller", {"facts": probe})


def _probe(name: str, raw: Mapping[str, Any]) -> Probe:
    """One probe of a document. Output that is not what was read makes the probe unusable, and says so."""
    stdout, error, status = raw["stdout"], raw.get("error"), raw["exit_status"]
    if not isinstance(stdout, str) or (status is not None and type(status) is not int):
        raise TypeError(f"probe {name}")
    if error is None:
        try:
            whole = stdout.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            whole = b""
        if raw.get("stdout_bytes") != len(whole):
            error = f"cut: {len(whole)} of {raw.get('stdout_bytes')} bytes of output are here"
        elif raw.get("stdout_sha256") != hashlib.sha256(whole).hexdigest():
            error = "changed: the output does not match its digest"
    return Probe(
        name=name,
        command=tuple(str(word) for word in raw["command"]),
        exit_status=status,
        stdout=stdout,
        stderr=str(raw.get("stderr", "")),
        duration=float(raw.get("duration", 0)),
        error=error,
    )


def _unpacked(data: bytes) -> bytes:
    """The JSON text; a compressed one is read to its end, and no further than :data:`LARGEST`."""
    if data[:2] != b"\x1f\x8b":
        return data
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        text = stream.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return text


def read(data: bytes) -> Evidence:
    """Read a document, gzip-compressed or plain. :class:`EvidenceError` says what is wrong with it."""
    try:
        raw = json.loads(_unpacked(data).decode())
    except (EOFError, OSError, ValueError, RecursionError, zlib.error) as error:
        raise EvidenceError(f"the evidence is not whole ({error}); collect it again") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise EvidenceError(f"the evidence is not of format {FORMAT}; collect it again with this version")
    if raw.get("digest") != hashlib.sha256(canonical(raw)).hexdigest():
        raise EvidenceError("the evidence does not match its digest: it was cut or changed; collect it again")
    try:
        return Evidence(
            kind=str(raw["kind"]),
            node=str(raw["node"]),
            collected_at=str(raw["collected_at"]),
            collector=str(raw["collector"]),
            probes={name: _probe(name, probe) for name, probe in raw["probes"].items()},
            digest=raw["digest"],
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EvidenceError(f"the evidence lacks or garbles {error}; collect it again") from error
