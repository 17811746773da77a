# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens or closes a stage of the nodes' life for all hosts of the play, in the ledger."""

from __future__ import annotations

import os

from ansible_collections.metalyard.fleet.plugins.plugin_utils.package import metalyard
from ansible_collections.metalyard.fleet.plugins.plugin_utils.sweep import FleetAction


class ActionModule(FleetAction):
    """Adapter of metalyard.runs.stages.open_stage and close_stage."""

    BYPASS_HOST_LOOP = True

    def run(self, tmp=None, task_vars=None):
        """Return the run's id and, when opening, what each host is to do."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            argument_spec={
                "name": {"type": "str", "required": True},
                "state": {"type": "str", "choices": ["opened", "passed"], "required": True},
                "results": {"type": "list", "elements": "str", "default": []},
            }
        )
        plan = self.plan(task_vars)
        stages = metalyard("metalyard.runs.stages")
        stage = metalyard("metalyard.plan.lifecycle").Stage(arguments["name"])
        hosts = self.hosts(task_vars)
        check = self._task.check_mode
        if arguments["state"] == "passed":
            folder = self.folder(plan, task_vars)
            run = self.run_id(task_vars)
            changed = {}
            for sweep in arguments["results"]:
                outcomes = [folder.read(sweep, host) for host in hosts]
                stages.record_results(plan, run, stage, outcomes, check=check)
                changed.update({outcome.host: outcome.changed for outcome in outcomes})
            stages.close_stage(plan, stage, run, hosts, check=check, changed=changed)
            result["msg"] = f"stage {stage}: {len(hosts)} nodes passed"
            return result
        known = (task_vars.get("ansible_facts") or {}).get("metalyard_stage") or {}
        run = os.environ.get("METALYARD_RUN") or known.get("run")
        opening = stages.open_stage(plan, stage, hosts, run=run, check=check, holder=None)
        result["ansible_facts"] = {
            "metalyard_stage": {
                "run": opening.run,
                "name": str(stage),
                "decisions": {
                    host: {"kind": decision.kind, "reason": f"{decision.reason} Next step: {decision.next_step}"}
                    for host, decision in opening.decisions.items()
                },
            }
        }
        result["msg"] = f"stage {stage} of run {opening.run}: {len(hosts)} nodes"
        return result
