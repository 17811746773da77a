"""One BMC over Redfish: the DMTF library's asynchronous client, with what real BMCs need around it.

Requests are bounded in number and time. Only reads are sent again by themselves; a write is sent again only where it
certainly was not carried out: the session had run out, or If-Match did not match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
from redfish import aio

from metalyard.redfish import etags
from metalyard.redfish.connections import READS, Transport
from metalyard.redfish.documents import Document, links, uri
from metalyard.redfish.errors import (
    BmcError,
    GarbledError,
    NotFoundError,
    NotReadyError,
    RequestTimeoutError,
    UnreachableError,
)
from metalyard.redfish.pace import Pace
from metalyard.redfish.quirks import STANDARD, Quirks
from metalyard.redfish.refusals import connection_error, login_error, refusal

ROOT = "/redfish/v1/"
IN_FLIGHT = 4
"""Requests to one BMC at a time: more makes AMI and iDRAC slower, not faster."""
MOST_PAGES = 1000

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer:
    """What a BMC answered to a write."""

    status: int
    body: dict[str, Any]
    location: str | None = None


@dataclass(frozen=True)
class Patience:
    """How often and how long a read is tried again. Times in seconds."""

    tries: int = 4
    pause: float = 0.5
    starting: float = 180.0
    """In all, over every request to a BMC that answers 'not ready yet'."""
    longest_pause: float = 30.0


@dataclass
class Bmc:
    """One BMC. Errors are :class:`BmcError`, and name the node.

    ``gaps`` collects what could not be read by the tolerant methods (:meth:`find`, :meth:`resources`): a reader must
    take a gap as unknown, never as healthy.
    """

    node: str
    address: str
    transport: Transport
    timeout: float = 30.0
    patience: Patience = field(default_factory=Patience)
    pace: Pace = field(default_factory=Pace)
    quirks: Quirks = STANDARD
    gaps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._secrets: set[str] = set()
        self._signed_in = False
        self._waited = 0.0
        self._client = self._make_client(None, None)

    def _make_client(self, user: str | None, password: str | None) -> aio.AsyncRedfishClient:
        # A BMC that is not there is known by its connection, long before a slow answer's time is over.
        limit = aiohttp.ClientTimeout(total=self.timeout, sock_connect=min(10.0, self.timeout))
        host = f"[{self.address}]" if self.address.count(":") > 1 and "[" not in self.address else self.address
        return aio.AsyncRedfishClient(
            f"https://{host}", username=user, password=password, session=self.transport, timeout=limit
        )

    # Sessions

    async def login(self, user: str, password: str) -> None:
        """Open the one session that everything after uses. One try: BMCs lock accounts.

        :class:`CredentialsError`, :class:`PasswordChangeError` (the session is open, and good for the change only),
        :class:`SessionsFullError`, :class:`UnreachableError`.
        """
        await self.logout()
        self.hide(password)
        self._client = self._make_client(user, password)

        async def attempt() -> None:
            try:
                await self._client.login()
            except aio.RedfishError as error:
                raise login_error(self.node, self.address, user, error, self.scrub) from error

        # A login that found no connection, or a service that is starting, was not carried out: it is no try at a
        # password.
        await self._patiently(attempt, lambda error: error.passing and not error.sent)
        self._signed_in = True

    async def logout(self) -> None:
        """Close the session, whatever state it is in. Never raises for the BMC's sake, never takes long."""
        with suppress(aio.RedfishError, TimeoutError):
            async with asyncio.timeout(min(10.0, self.timeout)):
                await self._client.logout()
        self._signed_in = False

    def forgive(self) -> None:
        """Give a BMC that was just reset its whole patience back."""
        self._waited = 0.0

    def hide(self, secret: str) -> None:
        """Keep a secret out of every message from now on: BMCs quote refused values."""
        if secret:
            self._secrets.add(secret)

    def scrub(self, text: str) -> str:
        """A text without the secrets."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "********")
        return text

    # Reading

    async def get(self, path: str) -> dict[str, Any]:
        """A resource. :class:`NotFoundError`, :class:`GarbledError` and every other refusal as an error."""
        return (await self.read(path))[0]

    async def read(self, path: str) -> tuple[dict[str, Any], str | None]:
        """A resource and its ETag."""

        async def attempt() -> tuple[dict[str, Any], str | None]:
            response = await self._send("GET", path)
            if not 200 <= response.status < 300:
                raise self._refused("GET", path, response)
            document = self._whole(path, response)
            etag = response.getheader("ETag")
            given = document.get("@odata.etag")
            return document, etag or (given if isinstance(given, str) else None)

        return await self._patiently(attempt)

    async def find(self, path: str | None) -> dict[str, Any] | None:
        """A resource, or None where the link is missing or dead; what could not be read goes to ``gaps``."""
        if path is None:
            return None
        try:
            return await self.get(path)
        except RequestTimeoutError:
            # One slow resource is a gap. A BMC that answers nothing any more is not.
            await self.get(ROOT)
            self._gap(path, "no answer in time")
        except GarbledError:
            self._gap(path, "no whole JSON object")
        except BmcError as error:
            if error.status is None:
                raise
            self._gap(path, f"HTTP {error.status}")
        return None

    async def members(self, path: str | None) -> list[str]:
        """The URIs in a collection, over all its pages; none where it is missing, or has no or null Members."""
        found: list[str] = []
        seen: set[str] = set()
        while path is not None and path not in seen and len(seen) < MOST_PAGES:
            seen.add(path)
            page = await self.find(path)
            if page is None:
                break
            found += links(page, "Members")
            following = page.get("Members@odata.nextLink") or page.get("@odata.nextLink")
            path = uri(following) if isinstance(following, Mapping) else following
            if not isinstance(path, str):
                break
        return list(dict.fromkeys(found))

    async def resources(self, path: str | None) -> list[tuple[str, dict[str, Any]]]:
        """URI and content of every member that can be read, in the collection's order."""
        return await self.documents(await self.members(path))

    async def documents(self, paths: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
        """URI and content of every one that can be read."""
        found = await self.each(paths, self.find)
        return [(path, document) for path, document in found if document is not None]

    async def each(self, items: Iterable[Item], work: Callable[[Item], Awaitable[Result]]) -> list[tuple[Item, Result]]:
        """Do something for each item, :data:`IN_FLIGHT` requests at a time; the first error ends it all."""
        chosen = list(items)
        tasks = [asyncio.ensure_future(work(item)) for item in chosen]
        try:
            return list(zip(chosen, await asyncio.gather(*tasks), strict=True))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    # Writing

    async def patch(self, path: str, body: Document) -> Answer:
        """Change a resource, with the If-Match that this BMC takes; sent once for each value of it."""
        try:
            etag = (await self.read(path))[1]
        except (NotFoundError, GarbledError):
            etag = None
        rungs = etags.ladder(etag)
        response = await self._send("PATCH", path, body=body, if_match=rungs[0])
        for rung in rungs[1:]:
            if response.status == 428 and rung is None:
                continue
            if response.status not in (412, 428) or (rung == etags.ANY and response.status != 428):
                break
            response = await self._send("PATCH", path, body=body, if_match=rung)
        return self._answer("PATCH", path, response)

    async def post(self, path: str, body: Any, *, limit: float | None = None) -> Answer:
        """Send an action, a new resource, or a file (a form, streamed from disk). Never sent twice.

        ``limit`` is the time for it in seconds, where that is not the usual one. There is never an If-Match: iDRAC
        refuses it on actions.
        """
        return self._answer("POST", path, await self._send("POST", path, body=body, limit=limit))

    # Beneath

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        if_match: str | None = None,
        limit: float | None = None,
    ) -> Any:
        options: dict[str, Any] = {}
        if body is not None:
            options["body"] = body
        if if_match is not None:
            options["headers"] = {"If-Match": if_match}
        if limit is not None:
            options["timeout"] = aiohttp.ClientTimeout(total=limit, sock_connect=min(10.0, limit))
        try:
            async with self._slots:
                response = await getattr(self._client, method.lower())(path, **options)
                renewable = self._signed_in and (body is None or isinstance(body, Mapping))  # a file is read once
                if response.status == 401 and method not in READS and renewable:
                    # The session expired, so that nothing was done. The library renews it for reads only.
                    await self._client.login()
                    response = await getattr(self._client, method.lower())(path, **options)
        except aio.RedfishAuthenticationError as error:
            raise login_error(self.node, self.address, "", error, self.scrub) from error
        except aio.RedfishError as error:
            raise connection_error(self.node, self.address, method, path, error) from error
        return response

    async def _patiently(
        self,
        attempt: Callable[[], Awaitable[Result]],
        again: Callable[[UnreachableError], bool] = lambda error: error.passing,
    ) -> Result:
        """Try again what may pass: a lost connection a few times, 'not ready' for as long as patience lasts."""
        patience = self.patience
        lost = 0
        while True:
            try:
                return await attempt()
            except NotReadyError as error:
                pause = min(error.retry_after or 5.0, patience.longest_pause)
                if self._waited + pause > patience.starting:
                    raise
                self._waited += pause
            except UnreachableError as error:
                lost += 1
                if lost >= patience.tries or not again(error):
                    raise
                pause = patience.pause * 2 ** (lost - 1)
            except GarbledError:
                lost += 1
                if lost > 1:
                    raise
                pause = patience.pause
            await self.pace.sleep(pause)

    def _whole(self, path: str, response: Any) -> dict[str, Any]:
        try:
            document = response.dict if response.read else None
        except aio.RedfishProtocolError:
            document = None
        if not isinstance(document, dict):
            raise GarbledError(
                f"{self.node}: the BMC's answer to GET {path} is no whole JSON object ({len(response.read)} bytes)",
                "Run the command again. If it stays, reset the BMC, and look for newer firmware of it.",
            )
        return document

    def _answer(self, method: str, path: str, response: Any) -> Answer:
        if not 200 <= response.status < 300:
            raise self._refused(method, path, response)
        try:
            body = response.dict
        except aio.RedfishProtocolError:  # the status says it; some BMCs send a page of HTML along
            body = {}
        return Answer(response.status, body if isinstance(body, dict) else {}, response.getheader("Location"))

    def _refused(self, method: str, path: str, response: Any) -> BmcError:
        return refusal(self.node, method, path, response, self.scrub)

    def _gap(self, path: str, why: str) -> None:
        self.gaps.append(f"{path}: {why}")
