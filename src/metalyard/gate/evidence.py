"""Evidence: what was read off a node, raw; collected once, judged many times.

A document is JSON: ``{"format": 1, "kind": "os"|"bmc"|"fabric", "node": …, "collected_at": ISO 8601 UTC,
"collector": version, "probes": {name: probe}, "digest": sha256}`` where a probe is ``{"command": [...],
"exit_status": int|null, "duration": seconds, "stdout": text, "stderr": text, "error": null|"missing"|"timeout"|
"truncated"|text}``. ``digest`` is the SHA-256 of the canonical JSON of everything else, so that a document cut or
changed anywhere is refused: closed on doubt.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMAT = 1


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


def read(data: bytes) -> Evidence:
    """Read a document, gzip-compressed or plain. :class:`EvidenceError` says what is wrong with it."""
    try:
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        document = json.loads(text.decode())
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise EvidenceError(f"the evidence is not whole ({error}); collect it again") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise EvidenceError(f"the evidence is not of format {FORMAT}; collect it again with this version")
    if document.get("digest") != hashlib.sha256(canonical(document)).hexdigest():
        raise EvidenceError("the evidence does not match its digest: it was cut or changed; collect it again")
    try:
        probes = {
            name: Probe(
                name=name,
                command=tuple(probe["command"]),
                exit_status=probe["exit_status"],
                stdout=probe["stdout"],
                stderr=probe.get("stderr", ""),
                duration=float(probe.get("duration", 0)),
                error=probe.get("error"),
            )
            for name, probe in document["probes"].items()
        }
        return Evidence(
            kind=document["kind"],
            node=document["node"],
            collected_at=document["collected_at"],
            collector=document["collector"],
            probes=probes,
            digest=document["digest"],
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EvidenceError(f"the evidence lacks or garbles {error}; collect it again") from error
