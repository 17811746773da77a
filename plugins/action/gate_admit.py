# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets the verdicts of this run take effect in the ledger."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.gating import GateAction


class ActionModule(GateAction):
    """Adapter of metalyard.runs.gating.admit."""

    operation = "gate_admit"

    def outcomes(self, gating, plan, run, hosts, arguments, task_vars):
        """Admission or quarantine for each host."""
        return gating.admit(plan, run, hosts, check=self._task.check_mode)
