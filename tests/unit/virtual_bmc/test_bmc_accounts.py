"""Logging in: what an emulated BMC lets in, keeps out, and makes wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bmc_bench import FACTORY, PASSWORD, Bench, said

from metalyard.virtual.bmc.state import Account

ACCOUNT = "/AccountService/Accounts/1"
SESSIONS = "/SessionService/Sessions"


def as_delivered(bench: Bench) -> None:
    bench.bmc.state.kept.accounts[0].password = FACTORY
    bench.bmc.state.kept.accounts[0].change_required = True
    bench.bmc.state.changed()
    bench.password = FACTORY


async def log_in(bench: Bench, user: str = "admin", password: str | None = None) -> str:
    answer = await bench.ask("POST", SESSIONS, {"UserName": user, "Password": password or bench.password}, user=None)
    assert answer.status == 201, answer.body
    return answer.headers["X-Auth-Token"]


async def test_only_the_root_is_open(bench: Bench) -> None:
    assert (await bench.ask("GET", "", user=None)).status == 200
    answer = await bench.ask("GET", "/Systems", user=None)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic")
    assert said(answer) == ["NoValidSession"]


async def test_an_unknown_path_does_not_tell_strangers_that_it_is_unknown(bench: Bench) -> None:
    assert (await bench.ask("GET", "/Nothing", user=None)).status == 401
    assert (await bench.ask("GET", "/Nothing")).status == 404


async def test_a_session_opens_and_closes_the_door(bench: Bench) -> None:
    token = await log_in(bench)
    assert (await bench.ask("GET", "/Systems", headers={"X-Auth-Token": token})).status == 200
    session = next(iter(bench.bmc.state.sessions))
    assert (await bench.ask("DELETE", f"{SESSIONS}/{session}", headers={"X-Auth-Token": token})).status == 204
    assert (await bench.ask("GET", "/Systems", headers={"X-Auth-Token": token})).status == 401


async def test_the_session_table_is_limited(bench: Bench) -> None:
    limit = bench.bmc.model.constants["sessions"]["limit"]
    for _ in range(limit):
        await log_in(bench)
    refused = await bench.ask("POST", SESSIONS, {"UserName": "admin", "Password": PASSWORD}, user=None)
    assert refused.status == 503
    assert said(refused) == ["SessionLimitExceeded"]


async def test_a_session_nobody_uses_ends(bench: Bench) -> None:
    token = await log_in(bench)
    (session,) = bench.bmc.state.sessions.values()
    session.used -= 29
    assert (await bench.ask("GET", "/Systems", headers={"X-Auth-Token": token})).status == 200
    session.used -= 31
    assert (await bench.ask("GET", "/Systems", headers={"X-Auth-Token": token})).status == 401
    assert not bench.bmc.state.sessions


async def test_the_timeout_can_be_set_within_its_range(bench: Bench) -> None:
    refused = await bench.ask("PATCH", "/SessionService", {"SessionTimeout": 10})
    assert (refused.status, said(refused)) == (400, ["PropertyValueOutOfRange"])
    assert (await bench.ask("PATCH", "/SessionService", {"SessionTimeout": 600})).status == 200
    assert (await bench.get("/SessionService"))["SessionTimeout"] == 600


async def test_the_factory_password_is_good_for_its_change_only(bench: Bench) -> None:
    as_delivered(bench)
    answer = await bench.ask("POST", SESSIONS, {"UserName": "admin", "Password": FACTORY}, user=None)
    assert (answer.status, said(answer)) == (201, ["PasswordChangeRequired"])
    token = {"X-Auth-Token": answer.headers["X-Auth-Token"]}
    for headers in (token, None):
        for path in ("/Systems/DGX", "/AccountService", "/AccountService/Accounts"):
            refused = await bench.ask("GET", path, headers=headers)
            assert (refused.status, said(refused)) == (403, ["PasswordChangeRequired"]), path
    refused = await bench.ask("PATCH", ACCOUNT, {"Password": PASSWORD, "RoleId": "Operator"}, headers=token)
    assert refused.status == 403
    assert (await bench.ask("GET", ACCOUNT, headers=token)).status == 200
    assert (await bench.ask("PATCH", ACCOUNT, {"Password": PASSWORD}, headers=token)).status == 200
    assert (await bench.ask("GET", "/Systems/DGX", headers=token)).status == 200
    assert (await bench.ask("GET", "/Systems/DGX", password=FACTORY)).status == 401
    assert (await bench.ask("GET", "/Systems/DGX", password=PASSWORD)).status == 200


async def test_a_model_may_only_flag_the_factory_password(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(quirks={"password_change_enforced": False})
    as_delivered(bench)
    assert (await bench.ask("GET", "/Systems/DGX")).status == 200
    assert (await bench.get(ACCOUNT))["PasswordChangeRequired"] is True


@pytest.mark.parametrize("password", ["short", "x" * 12, "x" * 21, ""])
async def test_a_new_password_has_to_fit(bench: Bench, password: str) -> None:
    refused = await bench.ask("PATCH", ACCOUNT, {"Password": password})
    assert (refused.status, said(refused)) == (400, ["PropertyValueFormatError"])
    assert password == "" or password not in str(refused.body)
    assert (await bench.ask("GET", "/Systems")).status == 200


async def test_a_refused_password_is_not_repeated_in_the_answer(bench: Bench) -> None:
    refused = await bench.ask("PATCH", ACCOUNT, {"Password": 918273645})
    assert refused.status == 400
    assert "918273645" not in str(refused.body)


async def test_a_changed_password_ends_the_other_sessions(bench: Bench) -> None:
    mine, other = await log_in(bench), await log_in(bench)
    changed = await bench.ask("PATCH", ACCOUNT, {"Password": "quite-another-1"}, headers={"X-Auth-Token": mine})
    assert changed.status == 200
    assert (await bench.ask("GET", "/Systems", headers={"X-Auth-Token": mine})).status == 200
    assert (await bench.ask("GET", "/Systems", headers={"X-Auth-Token": other})).status == 401


async def test_five_bad_logins_lock_the_account_for_a_while(bench: Bench) -> None:
    for _ in range(5):
        assert (await bench.ask("GET", "/Systems", password="wrong")).status == 401
    assert (await bench.ask("GET", "/Systems")).status == 401, "the right password does not help while it is locked"
    bench.bmc.state.locked_until["1"] -= 31
    assert (await bench.ask("GET", "/Systems")).status == 200


async def test_a_good_login_forgives_the_bad_ones(bench: Bench) -> None:
    for _ in range(3):
        for _ in range(4):
            await bench.ask("GET", "/Systems", password="wrong")
        assert (await bench.ask("GET", "/Systems")).status == 200


async def test_a_session_outlives_the_lockout_and_can_lift_it(bench: Bench) -> None:
    token = {"X-Auth-Token": await log_in(bench)}
    for _ in range(5):
        await bench.ask("GET", "/Systems", password="wrong")
    account = (await bench.ask("GET", ACCOUNT, headers=token)).body
    assert isinstance(account, dict)
    assert account["Locked"] is True
    assert (await bench.ask("PATCH", ACCOUNT, {"Locked": False}, headers=token)).status == 200
    assert (await bench.ask("GET", "/Systems")).status == 200


async def test_roles_say_who_may_what(bench: Bench) -> None:
    for role in ("Operator", "ReadOnly"):
        bench.bmc.state.kept.accounts.append(Account(id=role, user=role.lower(), password=PASSWORD, role=role))
    bench.bmc.state.changed()
    reset = {"ResetType": "On"}
    action = "/Systems/DGX/Actions/ComputerSystem.Reset"
    assert (await bench.ask("GET", "/Systems/DGX", user="readonly")).status == 200
    assert (await bench.ask("POST", action, reset, user="readonly")).status == 403
    assert (await bench.ask("POST", action, reset, user="operator")).status == 202
    assert (await bench.ask("PATCH", ACCOUNT, {"Enabled": False}, user="operator")).status == 403
    own = "/AccountService/Accounts/ReadOnly"
    assert (await bench.ask("PATCH", own, {"RoleId": "Administrator"}, user="readonly")).status == 403
    assert (await bench.ask("PATCH", own, {"Password": "its-own-password"}, user="readonly")).status == 200


async def test_users_come_and_go_but_never_the_last_administrator(bench: Bench) -> None:
    body = {"UserName": "second", "Password": PASSWORD, "RoleId": "Administrator"}
    made = await bench.ask("POST", "/AccountService/Accounts", body)
    assert (made.status, made.headers["Location"]) == (201, "/redfish/v1/AccountService/Accounts/2")
    again = await bench.ask("POST", "/AccountService/Accounts", body)
    assert (again.status, said(again)) == (400, ["ResourceAlreadyExists"])
    assert (await bench.ask("DELETE", ACCOUNT, user="second")).status == 204
    refused = await bench.ask("DELETE", "/AccountService/Accounts/2", user="second")
    assert (refused.status, said(refused)) == (400, ["ResourceCannotBeDeleted"])


async def test_what_the_client_was_told_survives_a_kill(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    state = tmp_path / "bmc.json"
    first = make_bench(state_path=state)
    assert (await first.ask("PATCH", ACCOUNT, {"Password": "survives-a-kill-1"})).status == 200
    second = make_bench(state_path=state)
    assert (await second.ask("GET", "/Systems", password="survives-a-kill-1")).status == 200
    assert (await second.ask("GET", "/Systems", password=PASSWORD)).status == 401
    assert state.stat().st_mode & 0o777 == 0o600


def test_a_broken_state_file_is_named(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    state = tmp_path / "bmc.json"
    state.write_text('{"accounts": [')
    with pytest.raises(ValueError, match=r"bmc\.json: the emulated BMC's state can't be read"):
        make_bench(state_path=state)
