"""The client: what is sent again and what never, sessions, paging, ETags, and errors that say what to do."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from bmc_double import ROOT, SESSIONS, SYSTEM, BmcDouble, Reply, collection, refusal

from metalyard.redfish.client import Bmc
from metalyard.redfish.errors import (
    BmcError,
    CredentialsError,
    GarbledError,
    NotFoundError,
    NotReadyError,
    PasswordChangeError,
    RequestTimeoutError,
    SessionsFullError,
    UnreachableError,
)

LOST = aiohttp.ServerDisconnectedError()


@pytest.fixture
def double() -> BmcDouble:
    return BmcDouble()


async def signed_in(double: BmcDouble, **options: Any) -> Bmc:
    bmc = double.client(**options)
    await bmc.login("admin", "factory-Pass-1")
    return bmc


# Sent again, or not


async def test_a_read_is_sent_again_when_the_connection_breaks(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.on("GET", SYSTEM, LOST, LOST, LOST)
    assert (await bmc.get(SYSTEM))["Id"] == "1"
    assert len(double.sent("GET", SYSTEM)) == 4


async def test_a_read_gives_up_after_four_tries(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.on("GET", SYSTEM, *[LOST] * 9)
    with pytest.raises(
        UnreachableError, match=r"gpu-1: the BMC at bmc\.test broke the connection during GET"
    ) as caught:
        await bmc.get(SYSTEM)
    assert caught.value.unreachable
    assert len(double.sent("GET", SYSTEM)) == 4


@pytest.mark.parametrize("answer", [LOST, refusal(503, "SYS518", Retry_After="1"), TimeoutError(), Reply(500)])
async def test_a_write_is_never_sent_again(double: BmcDouble, answer: Any) -> None:
    bmc = await signed_in(double)
    double.always("POST", ".*Reset", answer)
    double.always("PATCH", SYSTEM, answer)
    with pytest.raises(BmcError):
        await bmc.post(f"{SYSTEM}/Actions/ComputerSystem.Reset", {"ResetType": "On"})
    with pytest.raises(BmcError):
        await bmc.patch(SYSTEM, {"AssetTag": "x"})
    assert len(double.sent("POST", "Reset")) == 1
    assert len(double.sent("PATCH")) == 1


async def test_retry_after_is_waited_for(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.on("GET", SYSTEM, refusal(503, "Base.1.8.ServiceTemporarilyUnavailable", Retry_After="7"))
    await bmc.get(SYSTEM)
    assert bmc.pace.waits == [7.0]


@pytest.mark.parametrize(
    "answer",
    [
        refusal(503, "IDRAC.2.8.SYS518", "Retry in 30 seconds"),
        refusal(400, "IDRAC.2.8.SWC0700", "iDRAC is not ready"),
        refusal(503, "IDRAC.2.8.RAC0508", "An unexpected error occurred"),
        refusal(429, "Base.1.8.GeneralError"),
    ],
)
async def test_a_service_that_is_starting_is_waited_for_but_not_for_ever(double: BmcDouble, answer: Reply) -> None:
    bmc = await signed_in(double)
    double.on("GET", SYSTEM, answer, answer)
    assert await bmc.get(SYSTEM)
    double.always("GET", SYSTEM, answer)
    with pytest.raises(NotReadyError) as caught:
        await bmc.get(SYSTEM)
    assert "still starting" in caught.value.next_step
    assert bmc.pace.time <= 180
    began = bmc.pace.time
    with pytest.raises(NotReadyError):  # the patience is the BMC's, not each request's
        await bmc.get(SYSTEM)
    assert bmc.pace.time == began


async def test_a_long_retry_after_does_not_hang(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.on("GET", SYSTEM, refusal(503, "SYS518", Retry_After="86400"))
    await bmc.get(SYSTEM)
    assert bmc.pace.time == 30


# Sessions


async def test_one_session_serves_everything_and_is_closed(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    await bmc.get(SYSTEM)
    await bmc.patch(SYSTEM, {"AssetTag": "x"})
    assert len(double.sent("POST", SESSIONS)) == 1
    await bmc.logout()
    assert double.sessions == {}
    await bmc.logout()


@pytest.mark.parametrize("answer", [Reply(401), Reply(404), Reply(500), LOST, TimeoutError()])
async def test_logout_never_raises(double: BmcDouble, answer: Any) -> None:
    bmc = await signed_in(double)
    double.on("DELETE", f"{SESSIONS}/.*", answer)
    await bmc.logout()


async def test_an_expired_session_is_renewed_for_reads_and_writes(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.sessions.clear()
    assert await bmc.get(SYSTEM)
    double.sessions.clear()
    await bmc.post(f"{SYSTEM}/Actions/ComputerSystem.Reset", {"ResetType": "On"})
    assert len(double.sent("POST", SESSIONS)) == 3
    assert len(double.sessions) == 1


async def test_a_wrong_password_is_tried_once_and_never_printed(double: BmcDouble) -> None:
    bmc = double.client()
    with pytest.raises(CredentialsError, match="does not take the password of 'admin'") as caught:
        await bmc.login("admin", "wrong-Secret-9")
    assert "bmc/gpu-1" in caught.value.next_step
    assert "wrong-Secret-9" not in caught.value.message + caught.value.next_step + repr(bmc)
    assert len(double.sent("POST", SESSIONS)) == 1


async def test_some_bmcs_refuse_a_login_with_400(double: BmcDouble) -> None:
    double.on("POST", SESSIONS, refusal(400, "iLO.2.14.UnauthorizedLoginAttempt"))
    with pytest.raises(CredentialsError):
        await double.client().login("admin", "x")


@pytest.mark.parametrize("message_id", ["Base.1.8.SessionLimitExceeded", "IDRAC.2.8.RAC0218"])
async def test_a_full_session_table_says_so(double: BmcDouble, message_id: str) -> None:
    double.on("POST", SESSIONS, refusal(503, message_id, "The maximum number of user sessions has been reached"))
    with pytest.raises(SessionsFullError, match="no room for another session") as caught:
        await double.client().login("admin", "factory-Pass-1")
    assert "Close sessions" in caught.value.next_step
    assert len(double.sent("POST", SESSIONS)) == 1


async def test_a_password_that_must_be_changed_is_told_with_its_account(double: BmcDouble) -> None:
    double.accounts["1"]["change"] = True
    bmc = double.client()
    with pytest.raises(PasswordChangeError) as caught:
        await bmc.login("admin", "factory-Pass-1")
    assert caught.value.account == "/redfish/v1/AccountService/Accounts/1"
    with pytest.raises(PasswordChangeError):  # the session is open, for the change only
        await bmc.get(SYSTEM)


async def test_login_waits_for_a_service_that_is_starting(double: BmcDouble) -> None:
    double.on("POST", SESSIONS, refusal(503, "SYS518", Retry_After="30"))
    await double.client().login("admin", "factory-Pass-1")
    assert double.accounts["1"]["failed"] == 0


@pytest.mark.filterwarnings("ignore:Service incorrectly responded")
async def test_a_root_that_wants_a_login_is_no_obstacle(double: BmcDouble) -> None:
    double.on("GET", ROOT, Reply(401))
    await double.client().login("admin", "factory-Pass-1")
    assert len(double.sessions) == 1


async def test_something_else_at_the_address(double: BmcDouble) -> None:
    double.on("GET", ROOT, Reply(200, b"<html>It works!</html>"))
    with pytest.raises(BmcError, match="no Redfish service"):
        await double.client().login("admin", "x")


async def test_an_ipv6_address_needs_no_brackets(double: BmcDouble) -> None:
    bmc = Bmc("gpu-1", "fd00::17", double)
    await bmc.login("admin", "factory-Pass-1")
    assert bmc._client._base_url.host == "fd00::17"


# Reading


async def test_pages_are_joined_and_loops_end(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    base = "/redfish/v1/Chassis/1/Sensors"
    double.resources[base] = collection("/a", "/b", **{"Members@odata.nextLink": f"{base}?$skip=2"})
    double.resources[f"{base}?$skip=2"] = collection("/b", "/c", **{"Members@odata.nextLink": base})
    assert await bmc.members(base) == ["/a", "/b", "/c"]


@pytest.mark.parametrize("content", [{}, {"Members": None}, {"Members": [None, {}, "x", {"@odata.id": 3}]}])
async def test_a_collection_without_members_is_empty(double: BmcDouble, content: dict[str, Any]) -> None:
    bmc = await signed_in(double)
    double.resources["/redfish/v1/X"] = content
    assert await bmc.members("/redfish/v1/X") == []
    assert await bmc.members(None) == []
    assert bmc.gaps == []


async def test_a_dead_link_is_a_gap_and_the_rest_is_read(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.resources["/redfish/v1/X"] = collection(SYSTEM, "/redfish/v1/dead", "/redfish/v1/broken")
    double.resources["/redfish/v1/broken"] = {}
    double.always("GET", "/redfish/v1/broken", Reply(200, b'{"Id": "br'))
    assert [path for path, _ in await bmc.resources("/redfish/v1/X")] == [SYSTEM]
    assert sorted(bmc.gaps) == ["/redfish/v1/broken: no whole JSON object", "/redfish/v1/dead: HTTP 404"]


@pytest.mark.parametrize("body", [b'{"Id": "1", "Na', b"", b"[1, 2]", b"\xff\xfe"])
async def test_an_answer_that_is_no_whole_object_is_an_error(double: BmcDouble, body: bytes) -> None:
    bmc = await signed_in(double)
    double.always("GET", SYSTEM, Reply(200, body))
    with pytest.raises(GarbledError, match=rf"gpu-1: the BMC's answer to GET {SYSTEM} is no whole JSON object"):
        await bmc.get(SYSTEM)


async def test_a_cut_answer_is_asked_for_once_more(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.on("GET", SYSTEM, Reply(200, b'{"Id"'))
    assert (await bmc.get(SYSTEM))["Id"] == "1"


async def test_one_slow_resource_is_a_gap_and_a_silent_bmc_is_unreachable(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.always("GET", "/redfish/v1/slow", TimeoutError())
    assert await bmc.find("/redfish/v1/slow") is None
    assert bmc.gaps == ["/redfish/v1/slow: no answer in time"]
    double.always("GET", ROOT, TimeoutError())
    with pytest.raises(RequestTimeoutError):
        await bmc.find("/redfish/v1/slow")


async def test_at_most_four_requests_are_in_flight(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    paths = [f"/redfish/v1/Things/{n}" for n in range(40)]
    double.resources |= {path: {"Id": path} for path in paths}
    assert len(await bmc.documents(paths)) == 40
    assert double.most_in_flight == 4


async def test_the_first_error_ends_the_others(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    paths = [f"/redfish/v1/Things/{n}" for n in range(40)]
    double.resources |= {path: {"Id": path} for path in paths}
    double.on("GET", "/redfish/v1/Things/3", refusal(403, "Base.1.8.PasswordChangeRequired"))
    with pytest.raises(PasswordChangeError):
        await bmc.documents(paths)
    asked = len(double.requests)
    await asyncio.sleep(0.01)
    assert len(double.requests) == asked < 30


async def test_a_link_to_another_host_is_refused(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    with pytest.raises(BmcError, match=r"not on bmc\.test"):
        await bmc.get("https://elsewhere.test/redfish/v1/Systems")


async def test_a_missing_resource_and_a_refusal_say_what_was_asked(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    with pytest.raises(NotFoundError, match="refused GET /redfish/v1/none: HTTP 404"):
        await bmc.get("/redfish/v1/none")
    double.on("GET", SYSTEM, refusal(403, "Base.1.8.InsufficientPrivilege", "There are insufficient privileges"))
    with pytest.raises(BmcError, match="HTTP 403, There are insufficient privileges") as caught:
        await bmc.get(SYSTEM)
    assert "Administrator" in caught.value.next_step


# Writing


@pytest.mark.parametrize("given", ['"abc"', 'W/"abc"', '""abc""', "abc", '"\\"abc\\""'])
@pytest.mark.parametrize("taken", ['"abc"', 'W/"abc"', None])
async def test_the_if_match_that_the_bmc_takes_is_found(double: BmcDouble, given: str, taken: str | None) -> None:
    bmc = await signed_in(double)
    double.etags[SYSTEM] = given
    double.wants_if_match = lambda value: None if value == taken else 412
    await bmc.patch(SYSTEM, {"AssetTag": "x"})
    assert double.resources[SYSTEM]["AssetTag"] == "x"


@pytest.mark.parametrize("given", [None, "", '""', 'W/""'])
async def test_a_bmc_that_insists_on_if_match_and_gives_no_etag(double: BmcDouble, given: str | None) -> None:
    bmc = await signed_in(double)
    if given is not None:
        double.etags[SYSTEM] = given
    double.wants_if_match = lambda value: 428 if value is None else None
    await bmc.patch(SYSTEM, {"AssetTag": "x"})
    assert double.sent("PATCH")[-1].headers["If-Match"] == "*"


async def test_a_bmc_that_takes_no_if_match_at_all_ends_in_an_error(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.etags[SYSTEM] = '"abc"'
    double.wants_if_match = lambda value: 412
    with pytest.raises(BmcError, match="HTTP 412"):
        await bmc.patch(SYSTEM, {"AssetTag": "x"})
    assert "*" not in [request.headers.get("If-Match") for request in double.sent("PATCH")]


async def test_actions_carry_no_if_match(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.etags[SYSTEM] = '"abc"'
    await bmc.post(f"{SYSTEM}/Actions/ComputerSystem.Reset", {"ResetType": "On"})
    assert "If-Match" not in double.sent("POST", "Reset")[0].headers


async def test_a_page_of_html_on_success_is_success(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    double.on("PATCH", SYSTEM, Reply(200, b"<html>"))
    assert (await bmc.patch(SYSTEM, {"AssetTag": "x"})).body == {}


async def test_a_quoted_secret_does_not_reach_the_message(double: BmcDouble) -> None:
    bmc = await signed_in(double)
    bmc.hide("new-Secret-77")
    double.on("PATCH", SYSTEM, refusal(400, "Base.1.8.PropertyValueFormatError", "The value 'new-Secret-77' is bad"))
    with pytest.raises(BmcError, match=r"The value '\*{8}' is bad"):
        await bmc.patch(SYSTEM, {"Password": "new-Secret-77"})
