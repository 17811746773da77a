"""The password's replacement: killed at every step, and never locked out."""

from __future__ import annotations

import string
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from bmc_double import SESSIONS, BmcDouble, JumpingPace, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from metalyard.plan.model import SitePlan
from metalyard.redfish.access import known_credentials, note_tries, sign_in
from metalyard.redfish.accounts import ensure_own_password, new_password
from metalyard.redfish.client import Bmc
from metalyard.redfish.errors import BmcError, CredentialsError, UnreachableError
from metalyard.secrets import SecretsError

FACTORY = "factory-Pass-1"
ACCOUNT = "/redfish/v1/AccountService/Accounts/1"


class Killed(BaseException):
    """The controller is gone from one moment to the next."""


class Store:
    """A secret store whose writes are whole or not at all, and which can be killed before and after each."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.event: Callable[[str], None] = lambda name: None

    def read(self, name: str) -> dict[str, Any] | None:
        entry = self.entries.get(name)
        return dict(entry) if entry is not None else None

    def write(self, name: str, entry: dict[str, Any]) -> None:
        self.event(f"before write {name}")
        self.entries[name] = dict(entry)
        self.event(f"after write {name}")


class Fuse:
    """Kills at the n-th event, counted from 1; never with 0."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) == self.at:
            raise Killed(name)


def make_plan(tmp_path: Path, **bmc: Any) -> SitePlan:
    secret = tmp_path / "factory"
    secret.touch(mode=0o600)
    secret.write_text(FACTORY)
    return SitePlan.model_validate(
        {
            "schema": 1,
            "site": "t",
            "baseline": "none",
            "bmc": {"user": "admin", "factory_user": "admin", "factory_password": {"file": "factory"}, **bmc},
            "maas": {"url": "http://127.0.0.1/MAAS", "key": {"env": "UNUSED"}},
            "racks": [{"name": "r1"}],
            "nodes": [
                {
                    "name": "gpu-1",
                    "rack": "r1",
                    "unit": 1,
                    "serial": "SN-1",
                    "profile": "p",
                    "bmc": {"address": "bmc.test"},
                    "boot_mac": "0c:42:a1:00:00:01",
                    "address": "10.0.0.1/24",
                }
            ],
            "root": tmp_path,
        }
    )


@pytest.fixture
def plan(tmp_path: Path) -> SitePlan:
    return make_plan(tmp_path)


async def rotate(double: BmcDouble, store: Store, plan: SitePlan, fuse: Callable[[str], None] | None = None) -> bool:
    """One run: sign in and see to the password. A kill leaves the session open, as a real one would."""
    double.event = store.event = fuse or (lambda name: None)
    node = plan.nodes[0]
    credentials, entry = known_credentials(node, plan, store)
    bmc = Bmc(node.name, node.bmc.address, double, pace=JumpingPace())
    access = await sign_in(bmc, credentials, entry, note_tries(node, store, entry))
    changed = await ensure_own_password(access, node, plan, store, FACTORY)
    await access.bmc.get("/redfish/v1/Systems/1")
    await bmc.logout()
    return changed


def assert_safe(double: BmcDouble, store: Store, user: str = "admin") -> None:
    """The store holds one password, it is the BMC's, and nobody else's."""
    entry = store.entries["bmc/gpu-1"]
    assert entry["password"] == double.password(user) != FACTORY
    assert set(entry) <= {"user", "password", "former"}
    assert not double.locked()
    assert all(account["password"] != FACTORY for account in double.accounts.values())


@pytest.mark.parametrize("must_change", [False, True])
async def test_the_factory_password_is_replaced_once(plan: SitePlan, must_change: bool) -> None:
    double, store = BmcDouble(), Store()
    double.accounts["1"]["change"] = must_change
    assert await rotate(double, store, plan)
    assert_safe(double, store)
    before = store.entries["bmc/gpu-1"]
    assert not await rotate(double, store, plan)
    assert store.entries["bmc/gpu-1"] == before
    assert double.sessions == {}


async def test_it_is_on_disk_before_the_bmc_is_told(plan: SitePlan) -> None:
    double, store = BmcDouble(), Store()
    fuse = Fuse(0)
    await rotate(double, store, plan, fuse)
    assert fuse.seen.index("after write bmc/gpu-1") < fuse.seen.index(f"before PATCH {ACCOUNT}")


async def count_events(tmp_path: Path, **options: Any) -> int:
    double, store, fuse = BmcDouble(), Store(), Fuse(0)
    double.accounts["1"]["change"] = options.pop("change", False)
    await rotate(double, store, make_plan(tmp_path, **options), fuse)
    return len(fuse.seen)


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("user", ["admin", "metalyard"])
async def test_killed_at_every_step_the_next_run_finishes(tmp_path: Path, user: str, change: bool) -> None:
    options = {"user": user}
    total = await count_events(tmp_path, change=change, **options)
    assert total > 20
    for step in range(1, total + 1):
        plan, double, store = make_plan(tmp_path, **options), BmcDouble(), Store()
        double.accounts["1"]["change"] = change
        with pytest.raises(Killed):
            await rotate(double, store, plan, Fuse(step))
        await rotate(double, store, plan)
        assert_safe(double, store, user)
        assert not await rotate(double, store, plan), f"killed at step {step}: the third run changed something"


@pytest.mark.parametrize("first", [None, 12, 18])
@pytest.mark.parametrize("user", ["admin", "metalyard"])
async def test_killed_at_the_same_step_five_times_running(tmp_path: Path, user: str, first: int | None) -> None:
    """The tries that a BMC grants are not used up by runs that end right after the same wrong one."""
    for step in range(1, await count_events(tmp_path, user=user) + 1):
        plan, double, store = make_plan(tmp_path, user=user), BmcDouble(), Store()
        double.session_limit = 100
        for at in [first or step, *[step] * 5]:
            with suppress(Killed):
                await rotate(double, store, plan, Fuse(at))
        await rotate(double, store, plan)
        assert_safe(double, store, user)


@settings(max_examples=80, deadline=None)
@given(steps=st.lists(st.integers(1, 45), max_size=6), user=st.sampled_from(["admin", "metalyard"]))
async def test_killed_again_and_again(tmp_path_factory: pytest.TempPathFactory, steps: list[int], user: str) -> None:
    plan = make_plan(tmp_path_factory.mktemp("plan"), user=user)
    double, store = BmcDouble(), Store()
    double.session_limit = 100
    for step in steps:
        try:
            await rotate(double, store, plan, Fuse(step))
        except Killed:
            continue
    await rotate(double, store, plan)
    assert_safe(double, store, user)
    assert len(double.accounts) == (1 if user == "admin" else 2)


@pytest.mark.parametrize("taken", [True, False])
async def test_a_lost_answer_to_the_change_is_settled_by_the_next_run(plan: SitePlan, taken: bool) -> None:
    double, store = BmcDouble(), Store()

    def lost(request: Any) -> Any:
        if taken:
            double.accounts["1"]["password"] = request.body["Password"]
        raise aiohttp.ServerDisconnectedError

    double.on("PATCH", ACCOUNT, lost)
    with pytest.raises(UnreachableError, match="Whether the new password was taken is not known"):
        await rotate(double, store, plan)
    assert await rotate(double, store, plan)
    assert_safe(double, store)


async def test_a_password_that_the_bmc_refuses_is_not_offered_again(plan: SitePlan) -> None:
    double, store = BmcDouble(), Store()
    offered: list[str] = []

    def refuse(request: Any) -> Any:
        offered.append(request.body["Password"])
        return refusal(400, "Base.1.8.PropertyValueFormatError", f"The value '{offered[-1]}' is not good")

    double.on("PATCH", ACCOUNT, refuse)
    with pytest.raises(BmcError, match="HTTP 400") as caught:
        await rotate(double, store, plan)
    assert offered[0] not in caught.value.message
    assert store.entries["bmc/gpu-1"] == {"user": "admin"}
    await rotate(double, store, plan)
    assert double.password() not in offered
    assert_safe(double, store)


async def test_a_bmc_that_says_yes_and_keeps_the_old_one_is_found_out(plan: SitePlan) -> None:
    double, store = BmcDouble(), Store()
    double.on("PATCH", ACCOUNT, lambda request: refusal(200, "Base.1.8.Success"))
    with pytest.raises(CredentialsError, match="refuses it at login"):
        await rotate(double, store, plan)
    assert store.entries["bmc/gpu-1"]["pending"]
    await rotate(double, store, plan)
    assert_safe(double, store)


async def test_a_store_that_can_not_be_written_leaves_the_bmc_alone(plan: SitePlan) -> None:
    double, store = BmcDouble(), Store()

    def full(name: str) -> None:
        raise SecretsError("no space left")

    store.event = full
    node = plan.nodes[0]
    credentials, entry = known_credentials(node, plan, store)
    access = await sign_in(Bmc(node.name, node.bmc.address, double), credentials, entry)
    with pytest.raises(BmcError, match="can't be written, and its BMC is left as it is: no space left"):
        await ensure_own_password(access, node, plan, store, FACTORY)
    assert double.password() == FACTORY
    assert FACTORY not in repr(access)


async def test_a_wrong_password_costs_one_try_per_credential(plan: SitePlan) -> None:
    double, store = BmcDouble(), Store()
    double.accounts["1"]["password"] = "somebody-Else-5"
    store.entries["bmc/gpu-1"] = {"user": "admin", "password": "current-One-1", "pending": "pending-One-1"}
    with pytest.raises(CredentialsError, match="takes none of the known passwords") as caught:
        await rotate(double, store, plan)
    said = caught.value.message + caught.value.next_step
    assert "the current one" in said
    assert "the pending one" in said
    assert "the factory one" in said
    assert not any(secret in said for secret in ("current-One", "pending-One", FACTORY))
    tried = [request.body["Password"] for request in double.sent("POST", SESSIONS)]
    assert tried == ["current-One-1", "pending-One-1", FACTORY]


async def test_the_same_password_is_not_tried_twice(plan: SitePlan) -> None:
    double, store = BmcDouble(), Store()
    double.accounts["1"]["password"] = "somebody-Else-5"
    store.entries["bmc/gpu-1"] = {"user": "admin", "password": FACTORY, "pending": FACTORY}
    with pytest.raises(CredentialsError):
        await rotate(double, store, plan)
    assert len(double.sent("POST", SESSIONS)) == 1


async def test_a_bmc_reset_to_factory_defaults_is_taken_in_again(plan: SitePlan) -> None:
    double, store = BmcDouble(), Store()
    store.entries["bmc/gpu-1"] = {"user": "admin", "password": "its-Own-One-1"}
    assert await rotate(double, store, plan)
    assert_safe(double, store)
    assert store.entries["bmc/gpu-1"]["former"] == ["its-Own-One-1"]


async def test_a_site_that_threw_the_factory_password_away_goes_on(plan: SitePlan) -> None:
    double, store = BmcDouble(), Store()
    await rotate(double, store, plan)
    (plan.root / "factory").unlink()
    assert not await rotate(double, store, plan)
    store.entries.clear()
    with pytest.raises(BmcError, match=r"no password is known .*does not exist"):
        await rotate(double, store, plan)


async def test_accounts_that_are_slots_are_filled_and_not_made(tmp_path: Path) -> None:
    plan, double, store = make_plan(tmp_path, user="metalyard"), BmcDouble(), Store()
    for slot in ("2", "3", "4"):
        double.accounts[slot] = {"UserName": "", "password": "", "change": False, "failed": 0}
    await rotate(double, store, plan)
    assert double.password("metalyard") == store.entries["bmc/gpu-1"]["password"]
    assert len(double.accounts) == 4


def test_a_new_password_fits_what_the_bmc_wants() -> None:
    assert len(new_password({})) == 16
    assert len(new_password({"MinPasswordLength": 20, "MaxPasswordLength": 32})) == 20
    assert len(new_password({"MinPasswordLength": 0, "MaxPasswordLength": 12})) == 12
    assert len({new_password({}) for _ in range(50)}) == 50


@given(shortest=st.integers(0, 40), more=st.integers(0, 40))
def test_every_new_password_holds_each_class_of_character(shortest: int, more: int) -> None:
    password = new_password({"MinPasswordLength": shortest, "MaxPasswordLength": shortest + more})
    assert max(shortest, 8) <= len(password) <= max(shortest + more, 16)
    for kind in (string.ascii_lowercase, string.ascii_uppercase, string.digits, "-_."):
        assert set(password) & set(kind)
    assert password[0].isalpha()
