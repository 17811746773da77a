# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every sweeping action shares: one process talks to all hosts of the play, each host gets its own result.

The result of a sweep is read by the next task, ``metalyard.fleet.sweep_result``, once per host.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard


class FleetAction(ActionBase):
    """An action that runs on the controller, knows the plan and the run, and touches no host by SSH."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def plan(self, task_vars):
        """The checked site plan of this inventory."""
        path = task_vars.get("metalyard_plan")
        if not path:
            raise AnsibleActionFail(
                "No site plan: the variable metalyard_plan is not set. Use a site plan as inventory "
                "(a file that begins with 'plugin: metalyard.fleet.site')."
            )
        room = metalyard("metalyard.plan")
        try:
            return room.load_plan(Path(path))
        except room.PlanError as error:
            raise AnsibleActionFail(f"The site plan can't be used:\n{error}") from None

    def run_id(self, task_vars):
        """The run that the stage was opened in."""
        stage = (task_vars.get("ansible_facts") or {}).get("metalyard_stage")
        if not stage:
            raise AnsibleActionFail("No stage is open: metalyard.fleet.stage with state=opened comes first.")
        return stage["run"]

    def folder(self, plan, task_vars):
        """The run's folder."""
        return metalyard("metalyard.runs.results").RunFolder.of(plan.state_dir, self.run_id(task_vars))

    def hosts(self, task_vars):
        """Names of the hosts still in this play."""
        return list(task_vars["ansible_play_hosts"])


class SweepAction(FleetAction):
    """Runs one operation for all hosts of the play. Subclasses name the operation and its options."""

    BYPASS_HOST_LOOP = True
    operation = ""
    """Folder of the results, and what sweep_result asks for."""
    function = ""
    """``module:function`` of the operation; see metalyard.sweep."""
    argument_spec: dict = {}

    def options(self, arguments, plan, hosts, task_vars):
        """Options of the operation from the task's arguments; more where a subclass knows more."""
        return arguments

    def after(self, plan, outcomes):
        """What the controller does once all hosts are through; nothing, where a subclass knows nothing."""

    def run(self, tmp=None, task_vars=None):
        """Sweep, leave each host's result in the run's folder, and say in a line how it went."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec=self.argument_spec)
        plan = self.plan(task_vars)
        hosts = self.hosts(task_vars)
        folder = self.folder(plan, task_vars)
        folder.clear(self.operation, hosts)
        metalyard("metalyard.runs.tether").tether()
        sweep = metalyard("metalyard.sweep")
        module, name = self.function.split(":")
        outcomes = {}

        def report(outcome):
            outcomes[outcome.host] = outcome
            folder.write(self.operation, outcome)
            self._display.vv(f"{outcome.host}: {outcome.message or 'done'}", host=outcome.host)

        try:
            context = sweep.Context(
                plan=plan,
                nodes=[plan.node(host) for host in hosts],
                secrets=metalyard("metalyard.secrets").FileSecretStore(plan.state_dir / "secrets"),
                report=report,
                check=self._task.check_mode,
                options=self.options(arguments, plan, hosts, task_vars),
                progress=lambda host, text: folder.progress(self.operation, host, text),
            )
            asyncio.run(getattr(metalyard(module), name)(context))
        except sweep.NodeError as error:
            # One cause for all: a wrong key, a region that does not answer. Each host says so.
            for host in hosts:
                if host not in outcomes:
                    report(sweep.HostResult(host, failed=True, message=error.message, next_step=error.next_step))
        if not self._task.check_mode:
            self.after(plan, outcomes)
        bad = sum(1 for outcome in outcomes.values() if outcome.failed or outcome.unreachable)
        result.update(changed=False, msg=f"{len(hosts)} nodes swept, {bad} with trouble", swept=len(hosts), trouble=bad)
        return result
