"""Emulated BMCs: Redfish over HTTPS in the shape of recorded machines, with the state machines behind it and faults."""

from metalyard.virtual.bmc.config import BmcConfig, Quirks, Timings
from metalyard.virtual.bmc.faults import BmcFault
from metalyard.virtual.bmc.firmware import firmware_image
from metalyard.virtual.bmc.hardware_file import hardware_file
from metalyard.virtual.bmc.server import BmcFleet

__all__ = ["BmcConfig", "BmcFault", "BmcFleet", "Quirks", "Timings", "firmware_image", "hardware_file"]
