# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings every BMC of the play to its planned account, time, boot mode and BIOS profile."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard
from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import SweepAction


class ActionModule(SweepAction):
    """One sweep of metalyard.redfish.operations.configure."""

    operation = "bmc_configure"
    function = "metalyard.redfish.operations:configure"
    argument_spec = {"reset": {"type": "str", "choices": ["auto", "now", "later"], "default": "auto"}}

    def options(self, arguments, plan, hosts, task_vars):
        """Add where each node stands: a node that carries work is not reset without being asked for."""
        options = {"states": metalyard("metalyard.runs.stages").states(plan, hosts)}
        if arguments["reset"] != "auto":
            options["reset"] = arguments["reset"]
        return options
