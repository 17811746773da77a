"""What a sweep does to BMCs: discover, configure and firmware, each for many nodes in one process.

Every one reports once per node, changes nothing in check mode, and reports no change when run again.
"""

from metalyard.redfish.operations.configuring import configure
from metalyard.redfish.operations.discovery import discover
from metalyard.redfish.operations.updating import firmware

__all__ = ["configure", "discover", "firmware"]
