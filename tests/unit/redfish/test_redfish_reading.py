"""Careful reading: documents, messages, ETags and quirks as real BMCs have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalyard.redfish import etags, messages
from metalyard.redfish.documents import dig, link, links, name_of, number, text
from metalyard.redfish.quirks import quirks_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["@odata.id", "Members", "Status", "a"]), inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "value", [None, "", "  ", "N/A", "0000000000", "Not Specified", "Default string", "xxxx", {}, [], True, "nil"]
)
def test_placeholders_are_no_text(value: object) -> None:
    assert text({"SerialNumber": value}, "SerialNumber") is None


@pytest.mark.parametrize(("value", "expected"), [(" ab ", "ab"), ("1652923003067", "1652923003067"), (7, "7")])
def test_texts_are_stripped(value: object, expected: str) -> None:
    assert text({"a": {"b": value}}, "a", "b") == expected


@given(document=JSON, path=st.lists(st.sampled_from(["@odata.id", "Members", "Status", "a"]), max_size=4))
def test_nothing_that_a_bmc_answers_breaks_the_reading(document: object, path: list[str]) -> None:
    dig(document, *path)
    text(document, *path)
    number(document, *path)
    link(document, *path)
    assert all(isinstance(item, str) for item in links(document, *path))
    assert isinstance(messages.said(document), str)
    assert isinstance(messages.ids(document), tuple)
    assert name_of(document, "/redfish/v1/Systems/1/")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), True, "7", None])
def test_what_is_no_number_is_none(value: object) -> None:
    assert number({"a": value}, "a") is None


def test_links_lose_fragments_and_repeats() -> None:
    document = {"L": [{"@odata.id": "/a#/x"}, {"@odata.id": "/a"}, {"@odata.id": "#/b"}, {}, None, "/c"]}
    assert links(document, "L") == ["/a"]
    assert link({"N": {"@odata.id": "/redfish/v1/systems/1/bios/settings/"}}, "N").endswith("settings/")


def test_an_id_is_not_the_last_segment() -> None:
    assert name_of({"Id": "bmc"}, "/redfish/v1/Managers/HGX_BMC_0") == "bmc"
    assert name_of({}, "/redfish/v1/Managers/HGX_BMC_0/") == "HGX_BMC_0"


def test_messages_wherever_they_stand() -> None:
    one = {"MessageId": "Base.1.12.0.PropertyUnknown", "Message": "The property  X is unknown."}
    for body in (
        {"error": {"@Message.ExtendedInfo": [one]}},
        {"error": {"@Message.ExtendedInfo": one}},
        {"@Message.ExtendedInfo": [one, one]},
        {"Messages": [one]},
    ):
        assert messages.ids(body) == ("PropertyUnknown",)
        assert messages.said(body) == "The property X is unknown."
    assert messages.said({"error": {"code": "x", "message": "Something  bad"}}) == "Something bad"
    assert messages.said({"@Message.ExtendedInfo": [{"MessageId": "Base.1.0.Success", "Message": "OK"}]}) == ""


@given(etag=st.none() | st.text(max_size=12))
def test_the_ladder_of_any_etag(etag: str | None) -> None:
    rungs = etags.ladder(etag)
    assert len(set(rungs)) == len(rungs)
    assert {None, etags.ANY} <= set(rungs)
    assert etag == etags.ANY or rungs[-2:] == [None, etags.ANY] or rungs[:2] == [None, etags.ANY]
    assert "" not in rungs


@given(opaque=st.text("abcdef0123456789", min_size=1))
def test_strong_then_weak_then_none(opaque: str) -> None:
    expected = [f'"{opaque}"', f'W/"{opaque}"', None, "*"]
    assert etags.ladder(f'"{opaque}"') == expected
    assert etags.ladder(f'W/"{opaque}"') == expected
    assert etags.ladder(opaque) == [*expected[:2], opaque, *expected[2:]]


@pytest.mark.parametrize(
    ("root", "system", "name"),
    [
        ({"Vendor": "AMI"}, {"Manufacturer": "NVIDIA"}, "dgx"),
        ({"Vendor": "AMI"}, {"Manufacturer": "ASUS"}, "ami"),
        ({"Vendor": "Dell"}, {}, "idrac"),
        ({"Oem": {"Hpe": {}}}, {}, "ilo"),
        ({"Vendor": "Lenovo"}, {"Model": "ThinkSystem SR675 V3"}, "xcc"),
        ({"Vendor": "Supermicro"}, None, "supermicro"),
        ({"Vendor": "NVIDIA"}, {}, "standard"),
        ({"Oem": None}, None, "standard"),
    ],
)
def test_the_family_of_a_bmc(root: dict, system: dict | None, name: str) -> None:
    assert quirks_of(root, system).name == name


def test_a_hang_on_restart_is_that_models_alone() -> None:
    assert quirks_of({"Vendor": "Lenovo"}, {"Model": "ThinkSystem SR675 V3"}).restart_by_off_on
    assert not quirks_of({"Vendor": "Lenovo"}, {"Model": "ThinkSystem SR670 V2"}).restart_by_off_on
