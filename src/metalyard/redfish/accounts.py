"""Replaces a BMC's password so that a crash at any moment locks nobody out.

The order is: the new password into the secret store and onto the disk, then to the BMC, then a fresh login with it,
then its promotion in the store. At every moment the store holds each password that the BMC may have.
"""

from __future__ import annotations

import itertools
import secrets as random
import string
from collections.abc import Mapping
from typing import Any

from metalyard.plan.model import Node, SitePlan
from metalyard.redfish.access import Access, Credential, keep, sign_in
from metalyard.redfish.client import ROOT, Bmc
from metalyard.redfish.documents import dig, link, number, text
from metalyard.redfish.errors import BmcError, CredentialsError, PasswordChangeError, UnreachableError
from metalyard.redfish.layout import Placed
from metalyard.sweep import Secrets

ADMINISTRATOR = "Administrator"
LENGTH = 16
"""Characters of a new password where the BMC does not ask for more or fewer; IPMI 1.5 takes no more than 16."""
FORMER = 5
"""Passwords that are kept after they were replaced."""
SYMBOLS = "-_."
"""Symbols that no vendor refuses and no shell or URL reads as something else."""


def needs_rotation(access: Access, factory: str | None) -> bool:
    """Whether the password in use is not one that Metalyard made and finished."""
    return (
        access.change_first is not None
        or access.credential.origin != "current"
        or access.credential.password == factory
        or bool(access.entry.get("pending"))
    )


async def ensure_own_password(
    access: Access, node: Node, plan: SitePlan, secrets: Secrets, factory: str | None
) -> bool:
    """Give the BMC a password of its own, or finish giving it one. True when something changed.

    Afterwards ``access`` is a session with that password. :class:`BmcError` where the BMC refuses.
    """
    if not needs_rotation(access, factory):
        return False
    bmc = access.bmc
    user = str(access.entry.get("user") or plan.bmc.user)
    if access.credential.origin == "pending" and access.credential.user == user and access.change_first is None:
        # The BMC took it and nobody was told: this login is the proof.
        _promote(access, node, secrets, user, access.credential.password)
        return True
    pending = str(access.entry.get("pending") or "") or new_password(await _limits(bmc, access))
    bmc.hide(pending)
    access.entry["user"] = user
    access.entry["pending"] = pending
    keep(node, secrets, access.entry)
    try:
        if access.credential.password != pending or access.change_first is not None:
            await _change(bmc, access, access.credential.user, pending)
            access.credential = await _fresh_login(bmc, access.credential.user, pending)
            access.change_first = None
        if access.credential.user != user:
            await _create(bmc, user, pending)
            access.credential = await _fresh_login(bmc, user, pending)
    except CredentialsError:
        raise  # it may have been taken: both stay in the store
    except BmcError as error:
        if error.status is not None and 400 <= error.status < 500:
            # The BMC said no. What it refuses for good must not be offered again.
            await _forget_refused(access, node, secrets)
        raise
    _promote(access, node, secrets, user, pending)
    return True


def _promote(access: Access, node: Node, secrets: Secrets, user: str, password: str) -> None:
    """Make the proven password the current one. The one before stays: it may be that of a BMC that was moved away."""
    former = access.entry.get("password")
    if former and former != password:
        access.entry["former"] = [former, *access.entry.get("former", [])][:FORMER]
    access.entry = {key: value for key, value in access.entry.items() if key not in ("pending", "tried")}
    access.entry |= {"user": user, "password": password}
    access.credential = Credential(user, password, "current")
    keep(node, secrets, access.entry)


async def _forget_refused(access: Access, node: Node, secrets: Secrets) -> None:
    """Drop a pending password that the BMC refused for good, once it is certain that the one in use still holds."""
    if access.credential.password == access.entry.get("pending"):
        return
    await sign_in(access.bmc, [access.credential], {})
    keep(node, secrets, {key: value for key, value in access.entry.items() if key not in ("pending", "tried")})


async def _fresh_login(bmc: Bmc, user: str, password: str) -> Credential:
    """A new session with the new password: the only proof that counts."""
    credential = Credential(user, password, "pending")
    try:
        again = await sign_in(bmc, [credential], {})
    except CredentialsError:
        raise CredentialsError(
            f"{bmc.node}: the BMC said that it took the new password of '{user}', and refuses it at login",
            "Run the same command again: the old and the new one are both kept, and one of them is right.",
        ) from None
    if again.change_first is not None:
        raise BmcError(
            f"{bmc.node}: the BMC took a new password of '{user}' and still wants it changed",
            f"Change it once on the BMC's web page, and put it into the secret entry 'bmc/{bmc.node}' as its password.",
        )
    return credential


async def _change(bmc: Bmc, access: Access, user: str, password: str) -> None:
    path = await _account(bmc, access.change_first, user)
    try:
        await bmc.patch(path, {"Password": password})
    except UnreachableError as error:
        raise UnreachableError(
            f"{error.message}. Whether the new password was taken is not known",
            "Run the same command again: the old and the new one are both kept, and one of them is right.",
        ) from error


async def _account(bmc: Bmc, change_first: PasswordChangeError | None, user: str) -> str:
    """The URI of an account. A BMC that wants a change first shows little: it says it, or the name is the Id."""
    if change_first is not None:
        return change_first.account or f"{ROOT}AccountService/Accounts/{user}"
    for path, document in await _accounts(bmc):
        if dig(document, "UserName") == user:
            return path
    raise BmcError(
        f"{bmc.node}: the BMC shows no account '{user}', although it let it in",
        "It may come from a directory service; name a local account as bmc.user in the plan.",
    )


async def _accounts(bmc: Bmc) -> list[Placed]:
    service = await bmc.get(await _service(bmc))
    return await bmc.resources(link(service, "Accounts"))


async def _service(bmc: Bmc) -> str:
    return link(await bmc.get(ROOT), "AccountService") or f"{ROOT}AccountService"


async def _create(bmc: Bmc, user: str, password: str) -> None:
    """Make Metalyard's own account, or set the password of one that is there already."""
    body = {"UserName": user, "Password": password, "RoleId": ADMINISTRATOR}
    accounts = await _accounts(bmc)
    for path, document in accounts:
        if dig(document, "UserName") == user:
            disabled = dig(document, "Enabled") is False
            await bmc.patch(path, {"Password": password, **({"Enabled": True} if disabled else {})})
            return
    free = [
        path
        for path, document in accounts
        if dig(document, "UserName") == "" and str(dig(document, "Id")) not in bmc.quirks.reserved_accounts
    ]
    if bmc.quirks.fixed_accounts or free:
        if not free:
            raise BmcError(
                f"{bmc.node}: every account slot of the BMC is taken, and '{user}' is in none",
                "Free a slot on the BMC, or name one of its accounts as bmc.user in the plan.",
            )
        await bmc.patch(free[0], {**body, "Enabled": True})
        return
    collection = link(await bmc.get(await _service(bmc)), "Accounts") or f"{ROOT}AccountService/Accounts"
    await bmc.post(collection, body)


async def _limits(bmc: Bmc, access: Access) -> Mapping[str, Any]:
    """What the BMC says about passwords; nothing while it wants a change first."""
    if access.change_first is not None:
        return {}
    return await bmc.find(await _service(bmc)) or {}


def new_password(limits: Mapping[str, Any]) -> str:
    """A random password with every class of character, as long as the AccountService wants.

    No character stands twice in a row, and the first one is a letter: some BMCs refuse the one or the other.
    """
    shortest = max(number(limits, "MinPasswordLength") or 0, 8)
    longest = number(limits, "MaxPasswordLength") or 0
    length = max(LENGTH, shortest)
    if longest >= shortest:
        length = min(length, longest)
    classes = (string.ascii_lowercase, string.ascii_uppercase, string.digits, SYMBOLS)
    everything = "".join(classes)
    while True:
        password = "".join(random.choice(everything) for _ in range(length))
        twice = any(a == b for a, b in itertools.pairwise(password))
        if password[0].isalpha() and not twice and all(set(password) & set(kind) for kind in classes):
            return password


def described(entry: Mapping[str, Any], user: str) -> str:
    """The state of a node's password in words, for a diff. Never the password."""
    return f"password of '{text(entry, 'user') or user}': {'its own' if entry.get('password') else 'as delivered'}\n"
