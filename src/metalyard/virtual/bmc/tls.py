"""Certificates of the virtual rack: one authority, and a leaf for every BMC and server that it signs."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from metalyard.files import write_atomically

AUTHORITY_DAYS = 3650
LEAF_DAYS = 825
"""Longest life that common clients accept of a server's certificate."""
RENEW_BEFORE = dt.timedelta(days=30)


@dataclass(frozen=True)
class Authority:
    """The rack's certificate authority: its certificate and the key that signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    path: Path
    """``ca.pem``, what clients verify against."""

    def issue(self, name: str, addresses: Sequence[str], certificate: Path, key: Path) -> None:
        """Write a leaf's certificate chain and key; a pair that still holds is left as it is.

        ``addresses`` are IP addresses and DNS names, without ports; each becomes a subject alternative name.
        """
        if _still_good(certificate, key, self.certificate, addresses):
            return
        leaf_key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [_alternative(address) for address in addresses]
        leaf = (
            _builder(name, self.certificate.subject, leaf_key.public_key(), LEAF_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(leaf_key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        write_atomically(key, _pem_key(leaf_key))
        write_atomically(certificate, _pem(leaf) + _pem(self.certificate), mode=0o644)


def ensure_authority(folder: Path, name: str = "Metalyard virtual rack") -> Authority:
    """The authority kept in ``folder`` (``ca.pem``, ``ca-key.pem``); made when there is none or it ends soon."""
    path, key_path = folder / "ca.pem", folder / "ca-key.pem"
    if path.is_file() and key_path.is_file():
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        except ValueError as error:
            raise ValueError(
                f"{folder}: the rack's authority can't be read ({error}); expected a PEM certificate and key. "
                "Remove both files and start the virtual rack again."
            ) from error
        fresh = certificate.not_valid_after_utc - RENEW_BEFORE > dt.datetime.now(dt.UTC)
        if isinstance(key, ec.EllipticCurvePrivateKey) and fresh and key.public_key() == certificate.public_key():
            return Authority(certificate, key, path)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(name, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_atomically(key_path, _pem_key(key))
    write_atomically(path, _pem(certificate), mode=0o644)
    return Authority(certificate, key, path)


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A server's TLS context: TLS 1.2 and later, and no trust store (it needs none, and each costs megabytes)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def fingerprint(certificate: Path) -> str:
    """SHA-256 of the leaf's DER form in hexadecimal, as a site plan's ``bmc.fingerprint`` pins it."""
    leaf = x509.load_pem_x509_certificate(certificate.read_bytes())
    return hashlib.sha256(leaf.public_bytes(serialization.Encoding.DER)).hexdigest()


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A clock that is a little behind must still find the certificate valid.
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _still_good(certificate: Path, key: Path, authority: x509.Certificate, addresses: Sequence[str]) -> bool:
    if not (certificate.is_file() and key.is_file()):
        return False
    try:
        leaf = x509.load_pem_x509_certificate(certificate.read_bytes())
        leaf.verify_directly_issued_by(authority)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except Exception:  # whatever is wrong with the old pair, the answer is a new one
        return False
    same_key = private.public_key() == leaf.public_key()
    fresh = leaf.not_valid_after_utc - RENEW_BEFORE > dt.datetime.now(dt.UTC)
    return same_key and fresh and list(names) == [_alternative(address) for address in addresses]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
