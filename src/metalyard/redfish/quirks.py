"""What differs between vendors, as data. Code asks a quirk; it never asks for a vendor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metalyard.redfish.documents import Document, text


@dataclass(frozen=True)
class Quirks:
    """One family of BMCs. The defaults are the Redfish standard."""

    name: str = "standard"
    serial_is_sku: bool = False
    """The number that people know the machine by (a service tag) is the SKU."""
    boot_at_settings: bool = False
    """The boot override is written to the system's settings object and not to the system."""
    boot_mode_attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """BIOS attribute that sets the boot mode, with its value by mode (``uefi``, ``legacy``)."""
    boot_target_none: bool = True
    """Whether the override target None may be written."""
    restart_by_off_on: bool = False
    """A restart can hang: switch off, wait, switch on."""
    fixed_accounts: bool = False
    """Accounts are slots that are written with PATCH; POST is refused."""
    reserved_accounts: frozenset[str] = frozenset()
    ntp_document: tuple[str, ...] = ()
    """Where in the manager the link to the resource with the NTP servers is, if not NetworkProtocol."""
    ntp_property: str = "NTPServers"
    oem_parameters: Mapping[str, Mapping[str, Any]] | None = None
    """Multipart part OemParameters by component (BIOS, BMC), where the vendor wants it."""
    gpu_devices: str = r"(?i)^gpu"
    """Regular expression on the Id of a PCIe device that is a GPU, for BMCs that list none as processors."""


STANDARD = Quirks()

_UEFI = {"uefi": "Uefi", "legacy": "Bios"}

FAMILIES: tuple[tuple[Mapping[str, str], Quirks], ...] = (
    # The first whose patterns all match wins. Keys: vendor, product and oem of the service root, manufacturer and
    # model of the system.
    (
        {"vendor": "(?i)^ami$", "manufacturer": "(?i)^nvidia"},
        Quirks("dgx", boot_at_settings=True),
    ),
    (
        {"vendor": "(?i)^ami$"},
        Quirks(
            "ami",
            boot_at_settings=True,
            oem_parameters={"BIOS": {"ImageType": "BIOS"}, "BMC": {"ImageType": "BMC"}},
        ),
    ),
    (
        {"vendor": "(?i)dell"},
        Quirks(
            "idrac",
            serial_is_sku=True,
            boot_mode_attributes={"BootMode": _UEFI},
            fixed_accounts=True,
            reserved_accounts=frozenset({"1", "2"}),
        ),
    ),
    (
        {"vendor": "(?i)^(hpe?|hewlett)"},
        Quirks(
            "ilo",
            boot_mode_attributes={"BootMode": {"uefi": "Uefi", "legacy": "LegacyBios"}},
            boot_target_none=False,
            ntp_document=("Oem", "Hpe", "Links", "DateTimeService"),
            ntp_property="StaticNTPServers",
        ),
    ),
    (
        {"vendor": "(?i)lenovo", "model": "SR675"},
        Quirks(
            "xcc",
            boot_mode_attributes={"BootModes_SystemBootMode": {"uefi": "UEFIMode", "legacy": "LegacyMode"}},
            restart_by_off_on=True,
        ),
    ),
    (
        {"vendor": "(?i)lenovo"},
        Quirks("xcc", boot_mode_attributes={"BootModes_SystemBootMode": {"uefi": "UEFIMode", "legacy": "LegacyMode"}}),
    ),
    ({"vendor": "(?i)supermicro"}, Quirks("supermicro")),
)


def quirks_of(root: Document, system: Document | None = None) -> Quirks:
    """The family of a BMC by its service root and, once read, its host system."""
    oem = root.get("Oem")
    seen = {
        "vendor": text(root, "Vendor") or " ".join(oem if isinstance(oem, Mapping) else ()),
        "product": text(root, "Product") or "",
        "manufacturer": text(system, "Manufacturer") or "",
        "model": text(system, "Model") or "",
    }
    for patterns, quirks in FAMILIES:
        if all(re.search(pattern, seen[key]) for key, pattern in patterns.items()):
            return quirks
    return STANDARD
