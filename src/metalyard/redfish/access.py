"""How Metalyard signs in to a BMC: each known credential once, in a fixed order, since BMCs lock accounts.

The secret entry ``bmc/<node>`` holds ``{"user", "password", "pending"}``. ``pending`` is a password that the BMC may
or may not have taken; ``password`` is missing until the factory password has been replaced. While it is not known
which one is right, ``tried`` is the last one that was, or may have been, refused: a run that follows a killed one
begins with the next, so that runs killed again and again can't use up a BMC's tries with the same wrong one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from metalyard.plan.model import Node, SitePlan
from metalyard.redfish.client import Bmc
from metalyard.redfish.connections import Connections
from metalyard.redfish.errors import BmcError, CredentialsError, PasswordChangeError
from metalyard.redfish.pace import Pace
from metalyard.secrets import SecretsError, resolve
from metalyard.sweep import Secrets

Origin = Literal["current", "pending", "factory"]


@dataclass(frozen=True)
class Credential:
    """A name and a password, and where they come from."""

    user: str
    password: str
    origin: Origin

    def __repr__(self) -> str:
        return f"Credential({self.user!r}, {self.origin!r})"

    @property
    def name(self) -> str:
        """What it is called where a secret must not stand."""
        return f"{self.origin} {self.user}"


@dataclass
class Access:
    """A signed-in BMC. ``change_first`` says that the BMC allows nothing but a new password, at that account."""

    bmc: Bmc
    credential: Credential
    entry: dict[str, Any] = field(repr=False)
    change_first: PasswordChangeError | None = None


def entry_name(node: Node) -> str:
    """The name of a node's secret entry."""
    return f"bmc/{node.name}"


def known_credentials(node: Node, plan: SitePlan, secrets: Secrets) -> tuple[list[Credential], dict[str, Any]]:
    """What to try, in order and without repetition: current, pending, factory. And the secret entry, or ``{}``.

    Where Metalyard's account is not the factory's, a pending password may already be the factory account's.
    :class:`BmcError` when there is nothing to try, or the entry is no entry.
    """
    entry = _read_entry(node, secrets)
    user = str(entry.get("user") or plan.bmc.user)
    tries: list[Credential] = []
    for origin in ("current", "pending"):
        password = entry.get("password" if origin == "current" else "pending")
        if password:
            tries.append(Credential(user, str(password), "current" if origin == "current" else "pending"))
    if entry.get("pending") and plan.bmc.factory_user != user:
        tries.append(Credential(plan.bmc.factory_user, str(entry["pending"]), "pending"))
    try:
        tries.append(Credential(plan.bmc.factory_user, resolve(plan.bmc.factory_password, plan), "factory"))
    except SecretsError as error:
        # A site that threw the factory password away after the first run is right to do so.
        if not tries:
            raise BmcError(
                f"{node.name}: no password is known for its BMC: there is no secret entry '{entry_name(node)}', "
                f"and of bmc.factory_password in the plan {error}",
                "Put the factory password where the plan says, and run the command again.",
            ) from None
    once = list({(c.user, c.password): c for c in reversed(tries)}.values())[::-1]
    after = [n for n, credential in enumerate(once, 1) if credential.name == entry.get("tried")]
    return [*once[after[0] :], *once[: after[0]]] if after else once, entry


@asynccontextmanager
async def signed_in(
    node: Node,
    plan: SitePlan,
    secrets: Secrets,
    connections: Connections,
    *,
    pace: Pace | None = None,
) -> AsyncIterator[Access]:
    """A BMC with an open session, closed at the end whatever happens.

    :class:`CredentialsError` when no known credential is taken.
    """
    credentials, entry = known_credentials(node, plan, secrets)
    bmc = new_bmc(node, plan, connections, pace)
    try:
        yield await sign_in(bmc, credentials, entry, note_tries(node, secrets, entry))
    finally:
        await bmc.logout()


def new_bmc(node: Node, plan: SitePlan, connections: Connections, pace: Pace | None = None) -> Bmc:
    """The client of a node's BMC, not signed in."""
    return Bmc(node.name, node.bmc.address, connections.transport(node), timeout=plan.bmc.timeout, pace=pace or Pace())


def keep(node: Node, secrets: Secrets, entry: dict[str, Any]) -> None:
    """Write a node's entry; it is on disk when this returns. :class:`BmcError` when it can't be: stop there."""
    try:
        secrets.write(entry_name(node), entry)
    except SecretsError as error:
        raise BmcError(
            f"{node.name}: the secret entry '{entry_name(node)}' can't be written, and its BMC is left as it is: "
            f"{error}",
            "Make the secret store writable, and run the command again.",
        ) from None


def note_tries(node: Node, secrets: Secrets, entry: dict[str, Any]) -> Callable[[Credential], None]:
    """Writes down what is or may be refused, as long as it is not known which password the BMC has."""

    def note(credential: Credential) -> None:
        if entry.get("pending"):
            entry["tried"] = credential.name
            keep(node, secrets, entry)

    return note


async def sign_in(
    bmc: Bmc,
    credentials: list[Credential],
    entry: dict[str, Any],
    note: Callable[[Credential], None] = lambda credential: None,
) -> Access:
    """Try each credential once. Anything but a refused password ends it: the BMC has a problem, not the password."""
    for position, credential in enumerate(credentials):
        if position == 0:
            note(credential)  # before, so that a run killed at the answer is known to have tried it
        try:
            await bmc.login(credential.user, credential.password)
        except CredentialsError:
            if position > 0:
                note(credential)  # after, so that a run killed before it was sent does not pass it over
            continue
        except PasswordChangeError as error:
            return Access(bmc, credential, entry, error)
        return Access(bmc, credential, entry)
    tried = " and ".join(dict.fromkeys(f"the {c.origin} one of '{c.user}'" for c in credentials))
    raise CredentialsError(
        f"{bmc.node}: the BMC at {bmc.address} takes none of the known passwords (tried once each: {tried})",
        f"Put the right one into the secret entry 'bmc/{bmc.node}', or reset the BMC's account to the factory "
        "password. Wait before another run: BMCs lock an account after a few wrong tries.",
    )


def _read_entry(node: Node, secrets: Secrets) -> dict[str, Any]:
    try:
        return dict(secrets.read(entry_name(node)) or {})
    except SecretsError as error:
        raise BmcError(
            f"{node.name}: the secret entry '{entry_name(node)}' can't be read: {error}",
            "Without it nobody knows the BMC's password. Restore the store from a backup.",
        ) from None
