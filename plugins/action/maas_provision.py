# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes every node of the play through MAAS: enlisted, commissioned, tagged, deployed."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard
from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import SweepAction


class ActionModule(SweepAction):
    """One sweep of metalyard.maas.operations.provision."""

    operation = "maas_provision"
    function = "metalyard.maas.operations:provision"

    def options(self, arguments, plan, hosts, task_vars):
        """A host that is still in the play is not set aside: a mark of ours in MAAS is from before."""
        return {"fixed": hosts}

    def after(self, plan, outcomes):
        """A node that was deployed anew has a new host key: the old one is forgotten before anything connects."""
        anew = [host for host, outcome in outcomes.items() if outcome.changed and _deployed(outcome)]
        metalyard("metalyard.runs.hostkeys").forget(plan, anew)


def _deployed(outcome):
    """Whether this sweep deployed the machine: its status is among what changed."""
    return any("status" in str(part.get("after", "")) for part in outcome.diff)
