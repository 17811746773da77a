# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the firmware of every node of the play to the baseline."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard
from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import SweepAction


class ActionModule(SweepAction):
    """One sweep of metalyard.redfish.operations.firmware."""

    operation = "bmc_firmware"
    function = "metalyard.redfish.operations:firmware"
    argument_spec = {"firmware_dir": {"type": "path", "required": True}}

    def options(self, arguments, plan, hosts, task_vars):
        """Add where each node stands: a node in service is updated by a rollout, never by the way."""
        return {**arguments, "states": metalyard("metalyard.runs.stages").states(plan, hosts)}
