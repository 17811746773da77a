# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes one host's result out of a sweep, so that the recap says per host what happened."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import FleetAction


class ActionModule(FleetAction):
    """Reads the host's file in the run's folder."""

    def run(self, tmp=None, task_vars=None):
        """Return ok, changed, failed or unreachable as the sweep found it."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec={"sweep": {"type": "str", "required": True}})
        plan = self.plan(task_vars)
        host = task_vars["inventory_hostname"]
        outcome = self.folder(plan, task_vars).read(arguments["sweep"], host)
        result.update(
            changed=outcome.changed,
            msg=outcome.message,
            next_step=outcome.next_step,
            aside=outcome.aside,
            seconds=outcome.seconds,
            data=outcome.data,
        )
        if outcome.diff:
            result["diff"] = outcome.diff
        if outcome.failed or outcome.unreachable:
            # Not Ansible's own 'unreachable', which no rescue sees: the failure must reach the ledger.
            result.update(failed=True, bmc_unreachable=outcome.unreachable)
        return result
