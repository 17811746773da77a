"""The connections to all BMCs of a sweep: one pool, one TLS context for the site's CA, a pin per node where given."""

from __future__ import annotations

import ssl
import warnings
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp

from metalyard.plan.model import Node, SitePlan
from metalyard.redfish.errors import UntrustedError

READS = frozenset({"GET", "HEAD"})

# The DMTF library warns on standard error of BMCs whose service root answers 401. An operator can't act on it.
warnings.filterwarnings("ignore", message="Service incorrectly responded with HTTP 401", category=UserWarning)


class Transport(Protocol):
    """What the DMTF client wants of an aiohttp session: ``async with transport.request(…) as response``."""

    def request(self, method: str, url: Any, **options: Any) -> Any:
        """Send one request."""
        ...


class _NodeTransport:
    """One node's way through the shared pool, with its own idea of which certificate is right."""

    def __init__(self, connections: Connections, trust: ssl.SSLContext | aiohttp.Fingerprint | bool) -> None:
        self._connections = connections
        self._trust = trust

    def request(self, method: str, url: Any, **options: Any) -> Any:
        """Send one request through the pool."""
        return self._connections.session(method).request(method, url, ssl=self._trust, **options)


class Connections:
    """An asynchronous context manager that holds the pool; :meth:`transport` gives each node its part of it."""

    def __init__(self, plan: SitePlan) -> None:
        self._plan = plan
        self._site_trust: ssl.SSLContext | bool | None = None
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        limit = self._plan.bmc.concurrency
        self._pooled = self._session(aiohttp.TCPConnector(limit=limit * 4, limit_per_host=4, keepalive_timeout=10))
        # Some BMCs reset a connection that is used again. A read is simply sent once more; a write must not be,
        # so that each write gets a connection of its own.
        self._fresh = self._session(aiohttp.TCPConnector(limit=limit, limit_per_host=4, force_close=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in (self._pooled, self._fresh):
            if session is not None:
                await session.close()
        self._pooled = self._fresh = None

    def session(self, method: str) -> aiohttp.ClientSession:
        """The session for a verb: reads share connections, writes do not."""
        session = self._pooled if method in READS else self._fresh
        if session is None:
            raise RuntimeError("the connections are used outside of their `async with`")
        return session

    def transport(self, node: Node) -> Transport:
        """The way to one node's BMC. :class:`UntrustedError` when the site's CA file can't be used."""
        if node.bmc.fingerprint is not None:
            return _NodeTransport(self, aiohttp.Fingerprint(bytes.fromhex(node.bmc.fingerprint)))
        return _NodeTransport(self, self._authority(node))

    def _authority(self, node: Node) -> ssl.SSLContext | bool:
        if self._site_trust is None:
            ca = self._plan.bmc.tls.ca
            if ca is None:
                self._site_trust = True
                return True
            file = self._plan.path(ca)
            try:
                self._site_trust = ssl.create_default_context(cafile=str(file))
            except OSError as error:  # ssl.SSLError is one
                raise UntrustedError(
                    f"{node.name}: the CA file {file} of bmc.tls.ca can't be used ({error.strerror or error})",
                    "Put the PEM certificate of the authority that signed the BMCs' certificates there.",
                ) from None
        return self._site_trust

    @staticmethod
    def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
