# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads every BMC of the play and holds each machine's identity against the plan."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import SweepAction


class ActionModule(SweepAction):
    """One sweep of metalyard.redfish.operations.discover."""

    operation = "bmc_discover"
    function = "metalyard.redfish.operations:discover"
