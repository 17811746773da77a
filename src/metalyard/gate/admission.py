"""The admission: the signed record that a node is in service, on which evidence, by which rules, and until when.

Signed with HMAC-SHA256 (one secret for signer and reader) or Ed25519 (readers hold the public key). The caller brings
the key; this module reads and keeps none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from metalyard.gate.evidence import EvidenceError, read
from metalyard.gate.finding import Verdict
from metalyard.gate.parsers.common import ParseError
from metalyard.gate.parsers.nvidia import gpu_rows

FORMAT = 1
HMAC = "hmac-sha256"
ED25519 = "ed25519"
SHORTEST_SECRET = 32
"""Bytes of an HMAC secret at least: a shorter one can be guessed."""


class AdmissionError(ValueError):
    """The admission can't be issued, or must not be trusted; says why and what to do."""


@dataclass(frozen=True)
class Admission:
    """What was admitted, and on what ground. Times are ISO 8601 in UTC, digests SHA-256 in hexadecimal."""

    node: str
    serials: Mapping[str, str]
    """Part (``chassis``, ``gpu 0``) to serial number."""
    firmware: Mapping[str, str]
    profile: str
    baseline: str
    rules: str
    evidence: Mapping[str, str]
    outcome: str
    issued: str
    expires: str
    format: int = FORMAT

    def body(self) -> bytes:
        """The bytes that are signed: JSON with sorted keys and no spaces."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


@dataclass(frozen=True)
class SignedAdmission:
    """An admission with its signature (base64)."""

    admission: Admission
    algorithm: str
    key_id: str
    """First 16 digits of the public key's SHA-256, or of an HMAC by the secret: names the key, does not tell it."""
    signature: str

    def as_json(self) -> bytes:
        """The record as it is kept and handed on."""
        document = {"admission": asdict(self.admission), "algorithm": self.algorithm, "key_id": self.key_id}
        return json.dumps({**document, "signature": self.signature}, sort_keys=True, indent=1).encode()


def issue(
    verdict: Verdict,
    *,
    serials: Mapping[str, str],
    firmware: Mapping[str, str],
    profile: str,
    baseline: str,
    issued: datetime,
    days: int,
) -> Admission:
    """Make the record from a verdict that admits; :class:`AdmissionError` for any other."""
    if not verdict.admits:
        raise AdmissionError(
            f"{verdict.node}: the verdict is {verdict.outcome.value}, which admits nobody; see its findings"
        )
    if not verdict.evidence or not verdict.rules:
        raise AdmissionError(f"{verdict.node}: the verdict names no evidence or no rules; judge the node again")
    if issued.tzinfo is None or days < 1:
        raise AdmissionError(f"{verdict.node}: expected a time with a time zone and at least 1 day, got {days} days")
    return Admission(
        node=verdict.node,
        serials=dict(serials),
        firmware=dict(firmware),
        profile=profile,
        baseline=baseline,
        rules=verdict.rules,
        evidence=dict(verdict.evidence),
        outcome=verdict.outcome.value,
        issued=_stamp(issued),
        expires=_stamp(issued + timedelta(days=days)),
    )


def inventory(documents: Mapping[str, bytes | None]) -> tuple[dict[str, str], dict[str, str]]:
    """Serial numbers by part, and firmware versions by component, from the evidence that a node was judged by.

    :class:`AdmissionError` where the evidence does not tell them: an admission without serials binds nothing.
    """
    try:
        bmc = read(documents.get("bmc") or b"")
        facts = json.loads(bmc.probes["facts"].stdout)
        serials = {"chassis": str(facts["serial"])}
        for part in facts.get("parts") or []:
            if part.get("serial"):
                serials.setdefault(f"{part['kind']} {part['part']}", str(part["serial"]))
        firmware = {str(name): str(version) for name, version in facts["firmware"].items() if version}
        probe = read(documents["os"] or b"").probes.get("gpus") if documents.get("os") else None
        if probe is not None and probe.answered:
            serials.update({row.part: row.serial for row in gpu_rows(probe)[0] if row.serial})
    except (EvidenceError, ParseError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise AdmissionError(f"the evidence tells no serials and firmware ({error}); collect it again") from error
    return serials, firmware


def sign_hmac(admission: Admission, secret: bytes) -> SignedAdmission:
    """Sign with a secret of at least 32 bytes that signer and reader share."""
    _strong(secret)
    signature = hmac.new(secret, _message(HMAC, admission), hashlib.sha256).digest()
    return SignedAdmission(admission, HMAC, _secret_id(secret), base64.b64encode(signature).decode())


def sign_ed25519(admission: Admission, private: bytes) -> SignedAdmission:
    """Sign with a private key of 32 bytes."""
    try:
        key = Ed25519PrivateKey.from_private_bytes(private)
    except ValueError as error:
        raise AdmissionError("the private key is not an Ed25519 key of 32 bytes") from error
    signature = key.sign(_message(ED25519, admission))
    public = key.public_key().public_bytes_raw()
    return SignedAdmission(admission, ED25519, _public_id(public), base64.b64encode(signature).decode())


def verify(
    record: bytes,
    *,
    now: datetime,
    secret: bytes | None = None,
    public: bytes | None = None,
    node: str | None = None,
) -> Admission:
    """The admission, when it is whole, signed by the given key, of the given node, and in its time.

    Exactly one key is given, and only its algorithm is taken: what the record says of its algorithm decides nothing.
    :class:`AdmissionError` says what is wrong.
    """
    if (secret is None) == (public is None):
        raise AdmissionError("give either the secret or the public key to verify an admission")
    if now.tzinfo is None:
        raise AdmissionError("give the time with its time zone to verify an admission")
    signed = _parse(record)
    admission = signed.admission
    name = admission.node
    wanted = HMAC if secret is not None else ED25519
    if signed.algorithm != wanted:
        raise AdmissionError(
            f"{name}: the admission is signed by {signed.algorithm}, and the key given is for {wanted}"
        )
    try:
        signature = base64.b64decode(signed.signature, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AdmissionError(f"{name}: the signature of the admission is not base64; prove the node again") from error
    message = _message(wanted, admission)
    if secret is not None:
        _strong(secret)
        good = hmac.compare_digest(hmac.new(secret, message, hashlib.sha256).digest(), signature)
    else:
        good = _ed25519(public or b"", message, signature)
    if not good:
        raise AdmissionError(
            f"{name}: the signature does not fit: the admission was changed, or signed by another key "
            f"({signed.key_id}); prove the node again"
        )
    if node is not None and node != name:
        raise AdmissionError(f"the admission is of {name}, expected {node}")
    issued, expires = _moment(admission.issued, name), _moment(admission.expires, name)
    if now < issued:
        raise AdmissionError(
            f"{name}: the admission was issued at {admission.issued}, which is later than now; see the clocks"
        )
    if now >= expires:
        raise AdmissionError(f"{name}: the admission expired at {admission.expires}; prove the node again")
    return admission


def _ed25519(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    except ValueError as error:
        raise AdmissionError("the public key is not an Ed25519 key of 32 bytes") from error
    return True


def _message(algorithm: str, admission: Admission) -> bytes:
    """What is signed: the purpose and algorithm stand in front, so that a signature serves for nothing else."""
    return b"metalyard-admission\0" + algorithm.encode() + b"\0" + admission.body()


def _parse(record: bytes) -> SignedAdmission:
    try:
        document = json.loads(record)
        body: dict[str, Any] = document["admission"]
        known = {field.name for field in fields(Admission)}
        if set(body) != known or body["format"] != FORMAT:
            raise ValueError(f"its fields are not those of format {FORMAT}")
        texts = [body[name] for name in ("node", "profile", "baseline", "rules", "outcome", "issued", "expires")]
        maps = [body[name] for name in ("serials", "firmware", "evidence")]
        if not all(isinstance(text, str) for text in texts) or not all(
            isinstance(one, dict) and all(isinstance(value, str) for value in one.values()) for one in maps
        ):
            raise ValueError("a field is not of its type")
        return SignedAdmission(
            Admission(**body), str(document["algorithm"]), str(document["key_id"]), str(document["signature"])
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AdmissionError(f"the admission is not whole ({error}); prove the node again") from error


def _strong(secret: bytes) -> None:
    if len(secret) < SHORTEST_SECRET:
        raise AdmissionError(f"the secret has {len(secret)} bytes, expected at least {SHORTEST_SECRET}")


def _secret_id(secret: bytes) -> str:
    return hmac.new(secret, b"metalyard-key-id", hashlib.sha256).hexdigest()[:16]


def _public_id(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _moment(text: str, node: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise AdmissionError(f"{node}: the admission has the time '{text}'; prove the node again") from error
    if moment.tzinfo is None:
        raise AdmissionError(f"{node}: the admission has the time '{text}' without time zone; prove the node again")
    return moment
