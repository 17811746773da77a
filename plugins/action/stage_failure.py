# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records in the ledger why a host failed a stage, and fails the host with one clear sentence."""

from __future__ import annotations

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard
from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import FleetAction


def _said(failure):
    """What the task said went wrong; of a loop, what its first failed item said."""
    for item in failure.get("results") or []:
        if isinstance(item, dict) and item.get("failed"):
            return _said(item)
    said = failure.get("msg") or failure.get("stderr") or failure.get("exception") or "failed without a message"
    return " ".join(str(said).split())[:2000]


class ActionModule(FleetAction):
    """Adapter of metalyard.runs.stages.fail_stage."""

    def run(self, tmp=None, task_vars=None):
        """Fail the host with what its task said."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            argument_spec={
                "name": {"type": "str", "required": True},
                "task": {"type": "str", "required": True},
                "result": {"type": "dict", "required": True},
            }
        )
        plan = self.plan(task_vars)
        host = task_vars["inventory_hostname"]
        failure = arguments["result"]
        message = _said(failure)
        if not str(message).startswith(host):
            message = f"{host}: task '{arguments['task']}': {message}"
        next_step = failure.get("next_step") or (
            f"See what the task said in the run's folder, put it right, and run the same command again; "
            f"to run this stage alone: metalyard bringup --limit {host} --stage {arguments['name']}"
        )
        metalyard("metalyard.runs.stages").fail_stage(
            plan,
            metalyard("metalyard.plan.lifecycle").Stage(arguments["name"]),
            self.run_id(task_vars),
            host,
            str(message),
            next_step,
            aside=bool(failure.get("aside")),
            check=self._task.check_mode,
            data=failure.get("data") or {},
        )
        result.update(failed=True, msg=f"{message} Next step: {next_step}", next_step=next_step)
        return result
