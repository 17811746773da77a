# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the fabric, as ibnetdiscover printed it, with the planned cables."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.gating import GateAction


class ActionModule(GateAction):
    """Adapter of metalyard.runs.gating.compare_fabric."""

    operation = "fabric_compare"
    argument_spec = {"document": {"type": "str", "required": True}}

    def outcomes(self, gating, plan, run, hosts, arguments, task_vars):
        """What is wrong with the cables of each host."""
        return gating.compare_fabric(plan, run, hosts, arguments["document"])
