# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gate's actions share: they judge in one process and leave each host its result like a sweep."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard
from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import FleetAction


class GateAction(FleetAction):
    """Calls a function of metalyard.runs.gating for all hosts of the play."""

    BYPASS_HOST_LOOP = True
    operation = ""
    argument_spec: dict = {}

    def outcomes(self, gating, plan, run, hosts, arguments, task_vars):
        """The result of each host, as a list of metalyard.sweep.HostResult."""
        raise AnsibleActionFail(f"{type(self).__module__} does not say what its hosts get")

    def run(self, tmp=None, task_vars=None):
        """Leave each host's result in the run's folder."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=self.argument_spec)
        plan = self.plan(task_vars)
        folder = self.folder(plan, task_vars)
        hosts = self.hosts(task_vars)
        folder.clear(self.operation, hosts)
        outcomes = self.outcomes(
            metalyard("metalyard.runs.gating"), plan, self.run_id(task_vars), hosts, arguments, task_vars
        )
        for outcome in outcomes:
            folder.write(self.operation, outcome)
        bad = sum(1 for outcome in outcomes if outcome.failed)
        result.update(changed=False, msg=f"{len(hosts)} nodes, {bad} with trouble", swept=len(hosts), trouble=bad)
        return result
