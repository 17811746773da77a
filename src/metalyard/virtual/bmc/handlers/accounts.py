"""Logging in: sessions, accounts, lockout, and the password that has to be changed first."""

from __future__ import annotations

import base64
import binascii
import secrets
import time

from metalyard.virtual.bmc.messages import RedfishError, message
from metalyard.virtual.bmc.service import SESSIONS, Answer, Bmc, Call
from metalyard.virtual.bmc.state import Account
from metalyard.virtual.bmc.tree import Resource

ACCOUNTS = "/redfish/v1/AccountService/Accounts"
PRIVILEGES: dict[str, frozenset[str]] = {
    "Administrator": frozenset({"Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"}),
    "Operator": frozenset({"Login", "ConfigureSelf", "ConfigureComponents"}),
    "ReadOnly": frozenset({"Login", "ConfigureSelf"}),
}
"""What the predefined roles may do; the same as the model's Role resources say."""


def authenticate(bmc: Bmc, call: Call) -> None:
    """Find out who calls, or refuse with 401."""
    challenge = {"WWW-Authenticate": 'Basic realm="Redfish"'}
    bmc.state.expire(session_timeout(bmc))
    token = call.headers.get("X-Auth-Token")
    if token is not None:
        for session in bmc.state.sessions.values():
            if secrets.compare_digest(session.token.encode(), token.encode()):
                account = bmc.state.account(session.account)
                if account is None or not account.enabled:
                    break
                session.used = time.monotonic()
                call.session, call.account = session, account
                return
        raise RedfishError(401, "NoValidSession", headers=challenge)
    kind, _, value = call.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "basic" or not bmc.quirks.basic_auth:
        raise RedfishError(401, "NoValidSession", headers=challenge)
    try:
        user, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user, colon, password = "", "", ""
    account = check_password(bmc, user, password) if colon else None
    if account is None:
        raise RedfishError(401, "NoValidSession", headers=challenge)
    call.account = account


def check_password(bmc: Bmc, user: str, password: str) -> Account | None:
    """The account, when the password is its own and it is not locked; a wrong one counts towards the lockout."""
    policy = bmc.model.constants["accounts"]
    account = bmc.state.user(user)
    if account is None:
        return None
    if bmc.state.locked(account.id):
        return None
    if account.enabled and secrets.compare_digest(account.password.encode(), password.encode()):
        bmc.state.failures.pop(account.id, None)
        return account
    now = time.monotonic()
    recent = [at for at in bmc.state.failures.get(account.id, []) if now - at < policy["lockout_reset_after"]]
    recent.append(now)
    bmc.state.failures[account.id] = recent
    if len(recent) >= policy["lockout_threshold"]:
        bmc.state.locked_until[account.id] = now + policy["lockout_duration"]
        bmc.state.failures.pop(account.id)
        bmc.state.log("Session Audit", f"Account {account.user} is locked", severity="Warning")
    return None


def authorise(bmc: Bmc, call: Call, resource: Resource) -> None:
    """Refuse with 403 what the account may not do, and everything but its change while the password must change."""
    account = call.account
    if account is None:
        raise RedfishError(401, "NoValidSession")
    own = f"{ACCOUNTS}/{account.id}"
    if account.change_required and bmc.quirks.password_change_enforced:
        own_session = call.session is not None and resource.path == f"{SESSIONS}/{call.session.id}"
        changes = call.method == "PATCH" and resource.path == own and set(call.body or {}) <= {"Password"}
        reads = call.method in ("GET", "HEAD") and resource.path == own
        if not (changes or reads or (own_session and call.method in ("GET", "HEAD", "DELETE"))):
            raise RedfishError(403, "PasswordChangeRequired", own)
        return
    held = PRIVILEGES.get(account.role, frozenset({"Login"}))
    if call.method in ("GET", "HEAD"):
        return
    if resource.path == own and call.method == "PATCH" and set(call.body or {}) <= {"Password"}:
        needed = "ConfigureSelf"
    elif call.session is not None and resource.path == f"{SESSIONS}/{call.session.id}":
        needed = "Login"
    else:
        needed = resource.record.privilege
    if needed not in held:
        raise RedfishError(403, "InsufficientPrivilege")


def session_timeout(bmc: Bmc) -> int:
    """Seconds without a request after which a session ends."""
    return bmc.state.kept.session_timeout or int(bmc.model.constants["sessions"]["timeout"])


async def create_session(bmc: Bmc, call: Call, resource: Resource) -> Answer:
    """Log in."""
    body = call.body or {}
    for name in ("UserName", "Password"):
        if name not in body:
            raise RedfishError(400, "CreateFailedMissingReqProperties", name, related=[f"#/{name}"])
        if not isinstance(body[name], str):
            raise RedfishError(400, "PropertyValueTypeError", "*", name, related=[f"#/{name}"])
    account = check_password(bmc, body["UserName"], body["Password"])
    if account is None:
        raise RedfishError(401, "NoValidSession")
    bmc.state.expire(session_timeout(bmc))
    if len(bmc.state.sessions) >= bmc.model.constants["sessions"]["limit"]:
        raise RedfishError(503, "SessionLimitExceeded", headers={"Retry-After": "5"})
    session = bmc.state.new_session(account)
    path = f"{resource.path}/{session.id}"
    made = bmc.render(bmc.resources()[path])
    if account.change_required:
        made["@Message.ExtendedInfo"] = [message("PasswordChangeRequired", f"{ACCOUNTS}/{account.id}")]
    return Answer(201, made, {"Location": path, "X-Auth-Token": session.token, "ETag": str(made["@odata.etag"])})


async def delete_session(bmc: Bmc, call: Call, resource: Resource) -> None:
    """Log out."""
    bmc.state.sessions.pop(resource.item.id, None)
    bmc.state.changed()


async def patch_session_service(bmc: Bmc, call: Call, resource: Resource) -> None:
    """Another time-out."""
    bmc.state.kept.session_timeout = (call.body or {})["SessionTimeout"]
    bmc.state.save()


def _check_new_password(bmc: Bmc, password: str, name: str = "Password") -> None:
    policy = bmc.model.constants["accounts"]
    if not policy["password_minimum"] <= len(password) <= policy["password_maximum"]:
        raise RedfishError(400, "PropertyValueFormatError", "*", name, related=[f"#/{name}"])


async def create_account(bmc: Bmc, call: Call, resource: Resource) -> Answer:
    """A further user."""
    body = call.body or {}
    for name in ("UserName", "Password", "RoleId"):
        if name not in body:
            raise RedfishError(400, "CreateFailedMissingReqProperties", name, related=[f"#/{name}"])
        if not isinstance(body[name], str) or not body[name]:
            raise RedfishError(400, "PropertyValueTypeError", "*", name, related=[f"#/{name}"])
    for name in body:
        if name not in ("UserName", "Password", "RoleId", "Enabled", "Name", "Description", "AccountTypes"):
            raise RedfishError(400, "PropertyUnknown", name, related=[f"#/{name}"])
    if not isinstance(body.get("Enabled", True), bool):
        raise RedfishError(400, "PropertyValueTypeError", body["Enabled"], "Enabled", related=["#/Enabled"])
    if body["RoleId"] not in PRIVILEGES:
        raise RedfishError(400, "PropertyValueNotInList", body["RoleId"], "RoleId", related=["#/RoleId"])
    if bmc.state.user(body["UserName"]) is not None:
        raise RedfishError(400, "ResourceAlreadyExists", "ManagerAccount", "UserName", body["UserName"])
    _check_new_password(bmc, body["Password"])
    slots = bmc.model.constants["accounts"]["slots"]
    free = [str(slot) for slot in range(1, slots + 1) if bmc.state.account(str(slot)) is None]
    if not free:
        raise RedfishError(400, "CreateLimitReachedForResource")
    account = Account(
        id=free[0],
        user=body["UserName"],
        password=body["Password"],
        role=body["RoleId"],
        enabled=body.get("Enabled", True),
    )
    bmc.state.kept.accounts.append(account)
    bmc.state.save()
    path = f"{resource.path}/{account.id}"
    made = bmc.render(bmc.resources()[path])
    return Answer(201, made, {"Location": path, "ETag": str(made["@odata.etag"])})


async def patch_account(bmc: Bmc, call: Call, resource: Resource) -> None:
    """Another password, name, role or state of a user. All or nothing."""
    body = call.body or {}
    account: Account = resource.item
    if "UserName" in body:
        other = bmc.state.user(body["UserName"])
        if other is not None and other.id != account.id:
            raise RedfishError(400, "ResourceAlreadyExists", "ManagerAccount", "UserName", body["UserName"])
        if not body["UserName"]:
            raise RedfishError(400, "PropertyValueFormatError", "", "UserName", related=["#/UserName"])
    if "Password" in body:
        _check_new_password(bmc, body["Password"])
    changed = "Password" in body and body["Password"] != account.password
    account.user = body.get("UserName", account.user)
    account.role = body.get("RoleId", account.role)
    account.enabled = body.get("Enabled", account.enabled)
    if changed:
        account.password = body["Password"]
        account.change_required = False
    if "Locked" in body and body["Locked"] is False:
        bmc.state.locked_until.pop(account.id, None)
    bmc.state.save()
    if changed or not account.enabled:
        # Whoever knew the old password is out; the session that changed it goes on.
        bmc.state.end_sessions(account=account.id, keep=call.session.id if call.session else None)


async def delete_account(bmc: Bmc, call: Call, resource: Resource) -> None:
    """Remove a user; the one that calls, and the last administrator, stay."""
    account: Account = resource.item
    administrators = [one for one in bmc.state.kept.accounts if one.role == "Administrator" and one.enabled]
    if administrators == [account] or (call.account is not None and call.account.id == account.id):
        raise RedfishError(400, "ResourceCannotBeDeleted")
    bmc.state.kept.accounts.remove(account)
    bmc.state.save()
    bmc.state.end_sessions(account=account.id)
