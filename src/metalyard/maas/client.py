"""A thin asynchronous client of MAAS's API 2.0: every try is signed anew, no call asks for all machines.

What it does about errors: a lost connection, a time-out and a 5xx are tried again when the call only reads or says
what should be (GET, PUT, DELETE); of a POST they mean *unknown*, and the caller reads again. A 409 with Retry-After is
a conflict in MAAS's database and is tried again; one without is the machine's state. A 401's body is never kept.
"""

from __future__ import annotations

import asyncio
import email.utils
import ssl
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from metalyard.maas.errors import (
    BmcTrouble,
    KeyRefused,
    MaasError,
    MaasUnavailable,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    Refused,
    WrongState,
)
from metalyard.maas.machine import Machine
from metalyard.plan.model import SitePlan
from metalyard.secrets import SecretsError, resolve

Pairs = Iterable[tuple[str, str]]

TRIES = 4
CHUNK = 50
"""Machines asked for in one call: a region with 1,016 of them takes 25 s and 40 MB for all."""
CONNECTIONS = 8
"""Half of the requests that a region of four workers takes at once: others want answers too."""
BLOCKING_SECONDS = 300.0
"""For calls that wait for a BMC: one that answers 503 holds MAAS for 235 s."""
LONGEST_PAUSE = 30.0


class MaasClient:
    """One region, one key. Use as an asynchronous context; raises :class:`MaasError` and nothing else."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        ca: Path | None = None,
        timeout: float = 60.0,
        pause: float = 1.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        parts = key.strip().split(":")
        if len(parts) != 3 or not all(parts):
            raise KeyRefused(
                f"the MAAS API key has {len(parts)} part(s) between colons, expected consumer:token:secret",
                "Copy the whole key from MAAS: user menu, API keys; or `maas apikey --username NAME`.",
            )
        self._consumer, self._token, self._secret = parts
        self.url = url.rstrip("/")
        self._pause = pause
        self._http = httpx.AsyncClient(
            base_url=f"{self.url}/api/2.0/",
            timeout=httpx.Timeout(timeout, connect=10.0, pool=None),  # the queue is ours, not trouble
            verify=_tls(ca) if self.url.startswith("https") else True,
            limits=httpx.Limits(max_connections=CONNECTIONS),
            headers={"Accept": "application/json", "User-Agent": "metalyard"},
            trust_env=False,  # a proxy would see the key: PLAINTEXT signs with the secret itself
            transport=transport,
        )

    @classmethod
    def from_plan(cls, plan: SitePlan) -> MaasClient:
        """The client of a site; a key that can't be read is a :class:`KeyRefused`."""
        try:
            key = resolve(plan.maas.key, plan)
        except SecretsError as error:
            raise KeyRefused(f"the MAAS API key can't be read: {error}", "Put it where maas.key points to.") from None
        ca = plan.maas.tls.ca
        return cls(plan.maas.url, key, ca=plan.path(ca) if ca else None)

    async def __aenter__(self) -> MaasClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        op: str | None = None,
        query: Pairs = (),
        form: Pairs = (),
        blocking: bool = False,
    ) -> Any:
        """One call, with as many tries as are safe; the decoded JSON, or None where the answer has none."""
        parameters = [*query] if op is None else [("op", op), *query]
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        what = f"{method} {path}" + (f"?op={op}" if op else "")
        body = urlencode(list(form)).encode() if method in ("POST", "PUT") else None
        options: dict[str, Any] = (
            {"timeout": httpx.Timeout(BLOCKING_SECONDS, connect=10.0, pool=None)} if blocking else {}
        )
        for attempt in range(1, TRIES + 1):
            last = attempt == TRIES
            pause = min(self._pause * 2 ** (attempt - 1), LONGEST_PAUSE)
            headers = {"Authorization": self._sign()}
            if body is not None:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
            try:
                answer = await self._http.request(method, target, content=body, headers=headers, **options)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if last:
                    raise self._unreachable(error) from None
            except httpx.TransportError as error:
                if method == "POST":
                    raise _unknown(what, f"broke off ({type(error).__name__})") from None
                if last:
                    raise self._unreachable(error) from None
            else:
                if answer.status_code == 409 and "Retry-After" in answer.headers and not last:
                    pause = min(_seconds(answer.headers["Retry-After"], pause), LONGEST_PAUSE)
                elif answer.status_code < 500 or method == "POST" or last or _about_bmc(answer):
                    return self._judge(what, answer)
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _sign(self) -> str:
        # A nonce serves once, a timestamp for 300 s: nothing of this may be used a second time.
        fields = {
            "oauth_version": "1.0",
            "oauth_signature_method": "PLAINTEXT",
            "oauth_consumer_key": self._consumer,
            "oauth_token": self._token,
            "oauth_signature": f"&{self._secret}",
            "oauth_timestamp": str(int(time.time())),
            "oauth_nonce": uuid.uuid4().hex,
        }
        return "OAuth " + ", ".join(f'{name}="{quote(value, safe="")}"' for name, value in fields.items())

    def _judge(self, what: str, answer: httpx.Response) -> Any:
        status = answer.status_code
        if status == 401:
            raise self._bad_key(answer)
        text = " ".join(answer.text.split())[:400]
        if 200 <= status < 300:
            return self._decoded(what, answer)
        if status in (301, 302, 303, 307, 308):
            raise MaasUnavailable(
                f"MAAS at {self.url} redirects to {answer.headers.get('location', 'another place')}",
                "Set maas.url in the plan to the address it redirects to.",
            )
        if status == 400:
            fields = _fields(answer)
            if "current state" in text:  # commission and test say 400 where the others say 409
                raise WrongState(f"MAAS refused {what} in this state: {text}", "Look at the machine in MAAS.")
            raise Refused(f"MAAS refused {what}: {_said(fields) or text or 'no reason given'}", *_refusal(fields))
        if status == 403:
            raise NotAllowed(
                f"MAAS does not allow {what} with this key (403)" + (f": {text}" if text else ""),
                "Use an administrator's key, and look in MAAS who owns the machine and whether it is locked.",
            )
        if status == 404:
            raise NotFound(f"MAAS knows nothing for {what}: {text}", "Look at maas.url and at the machine in MAAS.")
        if status == 409 and "Retry-After" not in answer.headers:
            raise WrongState(f"MAAS refused {what} in this state: {text}", "Look at the machine in MAAS.")
        if _about_bmc(answer):
            raise BmcTrouble(
                f"MAAS answered {status} to {what}: {text}",
                "Check that the rack controller reaches the BMC, and the power parameters in MAAS.",
            )
        if what.startswith("POST"):
            raise _unknown(what, f"was answered {status}: {text}")
        raise MaasUnavailable(
            f"MAAS at {self.url} answered {status} to {what}, {TRIES} times: {text}",
            "Look at the region's log (regiond.log) and run the same command again.",
        )

    def _decoded(self, what: str, answer: httpx.Response) -> Any:
        if not answer.content or not answer.headers.get("content-type", "").startswith("application/json"):
            return None
        try:
            return answer.json()
        except ValueError:
            if what.startswith("POST"):
                raise _unknown(what, "was answered with broken JSON") from None
            raise MaasUnavailable(
                f"MAAS at {self.url} answered {what} with broken JSON", "Check what stands between here and MAAS."
            ) from None

    def _bad_key(self, answer: httpx.Response) -> KeyRefused:
        theirs = email.utils.parsedate_to_datetime(answer.headers["date"]) if "date" in answer.headers else None
        skew = abs(time.time() - theirs.timestamp()) if theirs else 0.0
        if skew > 240:
            return KeyRefused(
                f"MAAS at {self.url} refused the API key (401): its clock and this machine's differ by {skew:.0f} s, "
                "and it takes 300 s at most",
                "Set both clocks by NTP.",
            )
        return KeyRefused(
            f"MAAS at {self.url} refused the API key (401)",
            "Make a new key in MAAS (user menu, API keys) and put it where maas.key points to.",
        )

    def _unreachable(self, error: Exception) -> MaasUnavailable:
        text = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY" in text.upper():
            return MaasUnavailable(
                f"the certificate of MAAS at {self.url} can't be verified: {text}",
                "Set maas.tls.ca in the plan to the authority that signed it.",
            )
        return MaasUnavailable(
            f"MAAS at {self.url} can't be reached: {text}", "Check maas.url in the plan, the network and the region."
        )

    # What the operations ask of MAAS

    async def whoami(self) -> dict[str, Any]:
        """The key's user: ``username``, ``is_superuser``."""
        return _object(await self.call("GET", "users/", op="whoami"))

    async def machines(self, *, ids: Sequence[str] = (), macs: Sequence[str] = ()) -> list[Machine]:
        """The machines with these ids, and those with these MACs, asked for in chunks; none for none."""
        found: list[Machine] = []
        for key, values in (("id", ids), ("mac_address", macs)):
            for start in range(0, len(values), CHUNK):
                query = [(key, value) for value in values[start : start + CHUNK]]
                found += [Machine.of(entry) for entry in _list(await self.call("GET", "machines/", query=query))]
        return list({machine.system_id: machine for machine in found}.values())

    async def machine(self, system_id: str) -> Machine:
        """One machine; :class:`NotFound` when there is none."""
        return Machine.of(await self.call("GET", f"machines/{system_id}/"))

    async def create_machine(self, fields: Pairs) -> Machine:
        """Enlist. Not commissioned unless ``fields`` says so: with a wrong BMC password that is 503 and half done."""
        return Machine.of(await self.call("POST", "machines/", form=fields))

    async def update_machine(self, system_id: str, fields: Pairs) -> Machine:
        """Change what ``fields`` names."""
        return Machine.of(await self.call("PUT", f"machines/{system_id}/", form=fields))

    async def act(self, system_id: str, op: str, form: Pairs = (), *, blocking: bool = False) -> Machine:
        """An operation on a machine. Some answer with the old status: read again."""
        return Machine.of(await self.call("POST", f"machines/{system_id}/", op=op, form=form, blocking=blocking))

    async def allocate(self, system_id: str) -> Machine:
        """Take a Ready machine; :class:`WrongState` when it is not Ready any more."""
        return Machine.of(await self.call("POST", "machines/", op="allocate", form=[("system_id", system_id)]))

    async def power_parameters(self, ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """Power parameters by system id, passwords too; never log them."""
        found: dict[str, dict[str, str]] = {}
        for start in range(0, len(ids), CHUNK):
            query = [("id", value) for value in ids[start : start + CHUNK]]
            found |= _object(await self.call("GET", "machines/", op="power_parameters", query=query))
        return found

    async def power_fields(self, driver: str) -> set[str]:
        """Names of the parameters of a power driver; empty for one the region does not have."""
        types = _list(await self.call("GET", "rackcontrollers/", op="describe_power_types"))
        return {field["name"] for entry in types if entry.get("name") == driver for field in entry.get("fields", [])}

    async def names(self, path: str) -> list[str]:
        """The names of all tags (``tags/``), pools (``resourcepools/``), zones (``zones/``) or images."""
        return [str(entry["name"]) for entry in _list(await self.call("GET", path))]

    async def create_tag(self, name: str, comment: str) -> None:
        """A tag without definition; one that is there already is left as it is."""
        try:
            await self.call("POST", "tags/", form=[("name", name), ("comment", comment)])
        except (Refused, OutcomeUnknown):
            if name not in await self.names("tags/"):
                raise

    async def tag(self, name: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Put a tag on machines and take it off. MAAS passes over ids it does not know: look at the machines after."""
        form = [("add", system_id) for system_id in add] + [("remove", system_id) for system_id in remove]
        await self.call("POST", f"tags/{name}/", op="update_nodes", form=form)

    async def subnets(self) -> list[dict[str, Any]]:
        """All subnets."""
        return _list(await self.call("GET", "subnets/"))

    async def interface(self, system_id: str, number: int, op: str | None, form: Pairs) -> None:
        """Change a NIC (``op`` None), or link it to a subnet and unlink it."""
        path = f"nodes/{system_id}/interfaces/{number}/"
        await self.call("PUT" if op is None else "POST", path, op=op, form=form)

    async def failed_scripts(self, system_id: str, kind: str) -> list[str]:
        """Names of the scripts that failed or timed out: ``commissioning``, ``testing`` or ``installation``."""
        try:
            results = _object(await self.call("GET", f"nodes/{system_id}/results/current-{kind}/"))
        except MaasError:
            return []  # it only adds to a message
        return [str(run.get("name")) for run in results.get("results", []) if run.get("status") in (3, 4)]


def _tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca) if ca else None)
    except (OSError, ssl.SSLError) as error:
        raise MaasUnavailable(
            f"the authority of MAAS's certificate, {ca}, can't be read: {error}", "Set maas.tls.ca to a PEM file."
        ) from None


def _about_bmc(answer: httpx.Response) -> bool:
    text = answer.text if answer.status_code >= 500 else ""
    return "access the BMC" in text or "PowerActionError" in text


def _unknown(what: str, how: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{what} {how}; whether MAAS did it is not known", "Run the same command again: it looks before it acts."
    )


def _seconds(text: str, default: float) -> float:
    return float(text) if text.isdigit() else default


def _fields(answer: httpx.Response) -> dict[str, list[str]]:
    try:
        data = answer.json()
    except ValueError:
        return {}
    if not isinstance(data, dict):
        return {}
    return {
        str(key): [str(v) for v in value] if isinstance(value, list) else [str(value)] for key, value in data.items()
    }


def _said(fields: dict[str, list[str]]) -> str:
    return "; ".join((f"{key}: " if key != "__all__" else "") + " ".join(values) for key, values in fields.items())


def _refusal(fields: dict[str, list[str]]) -> tuple[str, dict[str, list[str]]]:
    if "architecture" in fields:
        return "Import boot images in MAAS first: without them it accepts no architecture.", fields
    if "distro_series" in fields or "hwe_kernel" in fields:
        return "Import that image in MAAS, or change maas.distro_series or maas.hwe_kernel in the plan.", fields
    return "Correct the field in the plan and run the same command again.", fields


def _list(data: Any) -> list[dict[str, Any]]:
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise MaasUnavailable("MAAS answered something else than a list of objects", "Check maas.url in the plan.")
    return data


def _object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise MaasUnavailable("MAAS answered something else than an object", "Check maas.url in the plan.")
    return data
