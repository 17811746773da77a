"""Query parameters and OData documents: how an answer is shaped, and what describes its types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from metalyard.virtual.bmc.messages import RedfishError
from metalyard.virtual.bmc.tree import Record, Resource

if TYPE_CHECKING:
    from metalyard.virtual.bmc.service import Bmc

SCHEMAS = "http://redfish.dmtf.org/schemas/v1"
SHARED = ("RedfishExtensions.v1_0_0", "Resource.v1_0_0", "Message.v1_0_8", "Settings.v1_2_2")
"""Schemas of parts that no resource has as its own type."""
LEVELS = 3


@dataclass(frozen=True)
class Options:
    """The query parameters of one read."""

    skip: int = 0
    top: int | None = None
    select: tuple[str, ...] = ()
    expand: str = ""
    only: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Read them: an unknown one is refused when it begins with ``$`` and passed over when it does not."""
        for name in given:
            if name.startswith("$") and name not in ("$skip", "$top", "$select", "$expand"):
                raise RedfishError(501, "QueryNotSupported", related=[name])
        if given.get("only"):
            raise RedfishError(400, "QueryParameterValueFormatError", given["only"], "only")
        if "only" in given and "$expand" in given:
            raise RedfishError(400, "QueryCombinationInvalid")
        expand = given.get("$expand", "")
        if "$expand" in given:
            kind, _, levels = expand.partition("(")
            level = levels.removeprefix("$levels=").removesuffix(")")
            if kind not in (".", "*", "~") or (levels and not level.isdecimal()):
                raise RedfishError(400, "QueryParameterValueFormatError", expand, "$expand")
            if levels and not 1 <= int(level) <= LEVELS:
                raise RedfishError(400, "QueryParameterOutOfRange", level, "$expand", f"1 to {LEVELS}")
        select = given.get("$select", "")
        if "$select" in given and not select:
            raise RedfishError(400, "QueryParameterValueFormatError", select, "$select")
        return cls(
            skip=_number(given, "$skip") or 0,
            top=_number(given, "$top"),
            select=tuple(part.strip() for part in select.split(",") if part.strip()),
            expand=expand,
            only="only" in given,
        )


def shaped(bmc: Bmc, resource: Resource, body: dict[str, Any], options: Options) -> dict[str, Any]:
    """The body as the query asks for it; a collection comes a page at a time."""
    if "Members" in body:
        members = body["Members"]
        if options.only and len(members) == 1:
            return bmc.render(bmc.resources()[members[0]["@odata.id"]])
        size = bmc.quirks.page_size if options.top is None else min(options.top, bmc.quirks.page_size)
        page = members[options.skip : options.skip + size]
        following = options.skip + len(page)
        if following < len(members) and options.top is None:
            body["Members@odata.nextLink"] = f"{resource.path}?$skip={following}"
        body["Members"] = page
    elif options.only:
        raise RedfishError(400, "QueryNotSupportedOnResource")
    if options.expand:
        levels = options.expand.partition("$levels=")[2].removesuffix(")")
        links = options.expand[0] in "*~"
        inside = options.expand[0] in "*."
        body = {
            key: _expanded(bmc, value, int(levels or 1), resource.path)
            if (links if key == "Links" else inside)
            else value
            for key, value in body.items()
        }
    if options.select:
        wanted = {part.partition("/")[0] for part in options.select}
        body = {key: value for key, value in body.items() if key in wanted or key.startswith(("@odata.", "Members"))}
    return body


def acceptable(headers: Mapping[str, str], kind: str) -> None:
    """Refuse with 406 a read whose Accept header has no room for what there is."""
    offered = [part.partition(";")[0].strip().lower() for part in headers.get("Accept", "*/*").split(",")]
    if not any(one in ("", "*/*", kind, kind.partition("/")[0] + "/*") for one in offered):
        raise RedfishError(406, "GeneralError")


def _expanded(bmc: Bmc, value: Any, levels: int, origin: str) -> Any:
    if isinstance(value, list):
        return [_expanded(bmc, one, levels, origin) for one in value]
    if not isinstance(value, dict):
        return value
    target = value.get("@odata.id")
    if set(value) == {"@odata.id"} and isinstance(target, str) and target != origin:
        resource = bmc.resources().get(target)
        if resource is None:
            return value
        body = bmc.render(resource)
        if levels > 1:
            return {
                key: one if key == "Links" else _expanded(bmc, one, levels - 1, target) for key, one in body.items()
            }
        return body
    return {key: _expanded(bmc, one, levels, origin) for key, one in value.items()}


def _number(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    text = given[name]
    if not text.lstrip("-").isdecimal():
        raise RedfishError(400, "QueryParameterValueTypeError", text, name)
    if int(text) < 0:
        raise RedfishError(400, "QueryParameterOutOfRange", text, name, "0 and more")
    return int(text)


def described_by(kind: str) -> str:
    """Where the JSON schema of a resource type is published."""
    return f"{SCHEMAS}/{kind}.json" if kind else ""


def metadata(records: Iterable[Record]) -> str:
    """The OData metadata document: a reference for every type of the tree."""
    kinds = sorted({record.type for record in records if record.type} | set(SHARED))
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">',
    ]
    by_name: dict[str, set[str]] = {}
    for kind in kinds:
        by_name.setdefault(kind.partition(".")[0], set()).add(kind)
    for name, versions in sorted(by_name.items()):
        lines.append(f"  <edmx:Reference Uri={quoteattr(f'{SCHEMAS}/{name}_v1.xml')}>")
        if name == "RedfishExtensions":
            lines.append('    <edmx:Include Namespace="RedfishExtensions.v1_0_0" Alias="Redfish"/>')
        else:
            lines += [f"    <edmx:Include Namespace={quoteattr(one)}/>" for one in sorted({name, *versions})]
        lines.append("  </edmx:Reference>")
    lines += [
        "  <edmx:DataServices>",
        '    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">',
        '      <EntityContainer Name="Service" Extends="ServiceRoot.v1_0_0.ServiceContainer"/>',
        "    </Schema>",
        "  </edmx:DataServices>",
        "</edmx:Edmx>",
    ]
    return "\n".join(lines) + "\n"


def service_document(root: Mapping[str, Any]) -> dict[str, Any]:
    """The OData service document: the root and what it links to."""
    entries = [{"name": "Service", "kind": "Singleton", "url": "/redfish/v1/"}]
    for name, value in root.items():
        if isinstance(value, dict) and set(value) == {"@odata.id"}:
            entries.append({"name": name, "kind": "Singleton", "url": value["@odata.id"]})
    sessions = root["Links"]["Sessions"]["@odata.id"]
    entries.append({"name": "Sessions", "kind": "Singleton", "url": sessions})
    return {"@odata.context": "/redfish/v1/$metadata", "@odata.id": "/redfish/v1/odata", "value": entries}
