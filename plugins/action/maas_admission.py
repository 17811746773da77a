# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells MAAS which nodes of the play the gate admitted, and which it refused and why."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard
from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import SweepAction


class ActionModule(SweepAction):
    """One sweep of metalyard.maas.operations.admit."""

    operation = "maas_admission"
    function = "metalyard.maas.operations:admit"

    def options(self, arguments, plan, hosts, task_vars):
        """Add the verdicts of this run."""
        return {"verdicts": metalyard("metalyard.runs.gating").verdicts(plan, self.run_id(task_vars), hosts)}
