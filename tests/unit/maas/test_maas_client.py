"""The MAAS client: signatures, tries, and what each answer means."""

import re
import time
from urllib.parse import parse_qs

import httpx
import pytest

from metalyard.maas import client as module
from metalyard.maas.client import MaasClient
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

KEY = "consumer:token:topsecret"


class Region:
    """Answers from a list, the last one for ever; keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.seen = []

    def __call__(self, request):
        self.seen.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **options):
        return MaasClient("http://maas.example/MAAS", KEY, transport=httpx.MockTransport(self), pause=0.001, **options)


def ok(data=None):
    return httpx.Response(200, json=[] if data is None else data)


async def test_each_try_is_signed_anew():
    region = Region(httpx.Response(502), httpx.Response(503), ok([]))
    async with region.client() as client:
        await client.call("GET", "tags/")
    signatures = [request.headers["Authorization"] for request in region.seen]
    nonces = {re.search(r'oauth_nonce="(\w+)"', text)[1] for text in signatures}
    assert len(nonces) == 3
    assert 'oauth_signature="%26topsecret"' in signatures[0]
    assert 'oauth_signature_method="PLAINTEXT"' in signatures[0]
    stamp = int(re.search(r'oauth_timestamp="(\d+)"', signatures[0])[1])
    assert abs(stamp - time.time()) < 5


@pytest.mark.parametrize("body", [{}, {"Date": "Fri, 20 Nov 2020 13:16:06 GMT"}])
async def test_a_401_never_shows_its_body(body):
    text = "Authorization Error: 'Invalid signature. Expected signature base string: &topsecret'"
    region = Region(httpx.Response(401, text=text, headers=body))
    async with region.client() as client:
        with pytest.raises(KeyRefused) as caught:
            await client.whoami()
    shown = f"{caught.value!s} {caught.value!r} {caught.value.next_step} {caught.value.__cause__}"
    assert "topsecret" not in shown
    assert "401" in shown
    assert ("clock" in shown) is bool(body)
    assert len(region.seen) == 1, "a bad key is not tried again"


async def test_bodies_are_url_encoded_and_never_an_empty_multipart():
    region = Region(ok({}))
    async with region.client() as client:
        await client.call("POST", "machines/abcdef/", op="release")
        await client.call("POST", "tags/h100/", op="update_nodes", form=[("add", "a"), ("add", "b")])
    empty, full = region.seen
    assert empty.headers["content-type"] == full.headers["content-type"] == "application/x-www-form-urlencoded"
    assert empty.content == b""
    assert parse_qs(full.content.decode()) == {"add": ["a", "b"]}
    assert full.url.raw_path == b"/MAAS/api/2.0/tags/h100/?op=update_nodes"


async def test_a_conflict_with_retry_after_is_tried_again_and_a_state_is_not():
    region = Region(httpx.Response(409, text="<html>", headers={"Retry-After": "0"}), ok({}))
    async with region.client() as client:
        await client.call("POST", "users/")
    assert len(region.seen) == 2
    region = Region(httpx.Response(409, text="Can't deploy a machine that is in the 'New' state"))
    async with region.client() as client:
        with pytest.raises(WrongState, match="'New' state"):
            await client.act("abcdef", "deploy")
    assert len(region.seen) == 1


@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.Response(504), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut")]
)
async def test_a_post_that_breaks_off_is_unknown_and_not_repeated(answer):
    region = Region(answer)
    async with region.client() as client:
        with pytest.raises(OutcomeUnknown, match="not known"):
            await client.create_machine([])
    assert len(region.seen) == 1


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.ReadTimeout("slow"), httpx.ConnectError("refused")])
async def test_what_only_reads_is_tried_again_and_then_named(answer):
    region = Region(answer)
    async with region.client() as client:
        with pytest.raises(MaasUnavailable, match=r"maas\.example"):
            await client.whoami()
    assert len(region.seen) == module.TRIES


async def test_a_post_that_never_left_is_tried_again():
    region = Region(httpx.ConnectError("refused"), ok({}))
    async with region.client() as client:
        await client.call("POST", "tags/")
    assert len(region.seen) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (httpx.Response(400, json={"hostname": ["Node with this Hostname already exists."]}), Refused, "hostname"),
        (
            httpx.Response(400, json={"__all__": ["Commission is not available because of the current state"]}),
            WrongState,
            "state",
        ),
        (httpx.Response(400, text="No provided email!"), Refused, "No provided email"),
        (httpx.Response(403), NotAllowed, "403"),
        (httpx.Response(404, text="No Machine matches"), NotFound, "No Machine"),
        (
            httpx.Response(503, text="No rack controllers can access the BMC of node gpu-1"),
            BmcTrouble,
            "rack controllers",
        ),
        (httpx.Response(500, text="PowerActionError: 503"), BmcTrouble, "PowerActionError"),
        (httpx.Response(302, headers={"location": "https://maas.example/MAAS"}), MaasUnavailable, "redirects"),
        (httpx.Response(200, text="<html>", headers={"content-type": "application/json"}), OutcomeUnknown, "JSON"),
    ],
)
async def test_answers_are_told_apart(answer, kind, text):
    region = Region(answer)
    async with region.client() as client:
        with pytest.raises(MaasError, match=text) as caught:
            await client.call("POST", "machines/abcdef/", op="commission")
    assert type(caught.value) is kind
    assert caught.value.next_step


async def test_machines_are_asked_for_in_chunks_and_never_all():
    region = Region(ok([]))
    async with region.client() as client:
        assert await client.machines() == []
        assert region.seen == []
        await client.machines(ids=[f"id{n}" for n in range(120)])
        await client.power_parameters([])
    asked = [request.url.params.get_list("id") for request in region.seen]
    assert [len(ids) for ids in asked] == [50, 50, 20]


async def test_an_answer_that_is_no_machine():
    async with Region(ok([{"hello": 1}])).client() as client:
        with pytest.raises(MaasUnavailable, match="not a machine"):
            await client.machines(ids=["a"])
    async with Region(ok({"a": 1})).client() as client:
        with pytest.raises(MaasUnavailable, match="list of objects"):
            await client.machines(ids=["a"])


@pytest.mark.parametrize("key", ["", "a:b", "a:b:c:d", "a::c"])
def test_a_key_of_the_wrong_form(key):
    with pytest.raises(KeyRefused, match="part"):
        MaasClient("http://maas.example/MAAS", key)


def test_an_authority_that_can_not_be_read(tmp_path):
    with pytest.raises(MaasUnavailable, match=r"nosuch\.pem"):
        MaasClient("https://maas.example/MAAS", KEY, ca=tmp_path / "nosuch.pem")


def test_the_environment_has_no_say(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    client = MaasClient("http://maas.example/MAAS", KEY)
    assert not client._http._mounts, "a proxy would see the key"
