"""Playbooks that go through a stage as the collection's do, without machines; and a program that plays them.

As a program: ``playing.py <state folder> [name=value ...]``; prints events and exits with the run's exit code.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

PLAYBOOK = """
- name: Discover
  hosts: fleet
  gather_facts: false
  tasks:
    - name: Open the stage
      run_once: true
      ansible.builtin.command: "{{ ansible_playbook_python }} {{ helper }} open {{ state }}"
      check_mode: false
      register: opened
    - name: Pass over
      ansible.builtin.meta: end_host
      when: (opened.stdout | from_json)[inventory_hostname] != 'go'
    - name: Work
      ansible.builtin.command: "sleep {{ nap | default(0) }}"
    - name: Read the secrets
      run_once: true
      no_log: true
      ansible.builtin.assert:
        that:
          - lookup('env', 'FACTORY_PASSWORD') == 'hunter2-env' or 'open' not in word | default('')
          - word | default('') in ['', 'open-sesame']
    - name: Go wrong
      ansible.builtin.fail:
        msg: the disk is on fire
      when: inventory_hostname == bad | default('')
    - name: Go out of reach
      ansible.builtin.command: "true"
      vars:
        ansible_connection: ssh
        ansible_host: 127.0.0.1
        ansible_port: 1
      when: inventory_hostname == lost | default('')
    - name: Close the stage
      run_once: true
      ansible.builtin.command: >-
        {{ ansible_playbook_python }} {{ helper }} close {{ state }} {{ ansible_play_hosts | join(' ') }}
      when: not ansible_check_mode
"""
INVENTORY = """
all:
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  children:
    fleet:
      hosts: {gpu-r01-1: {}, gpu-r01-2: {}, gpu-r01-3: {}}
"""


def site(state):
    from staged_rack import SITE

    from metalyard.plan import load_plan

    return load_plan(SITE).model_copy(update={"state": Path(state)})


def play(state, *, check=False, resume=None, playbook=None, limit=None, on_event=None, **variables):
    """Take three nodes through discover."""
    from metalyard.runs.execute import bringup

    folder = Path(state).parent
    files = {"stage.yml": PLAYBOOK, "hosts.yml": INVENTORY}
    for name, text in files.items():
        (folder / name).write_text(text)
    return bringup(
        site(state),
        folder / "hosts.yml",
        stages=None if resume else ["discover"],
        check=check,
        resume=resume,
        limit=limit,
        extra_vars={"state": str(state), "helper": __file__, **variables},
        on_event=on_event,
        playbooks=[playbook or str(folder / "stage.yml")],
    )


def stage(verb, state, hosts):
    """What the playbook's first and last task do."""
    import os

    from metalyard.plan.lifecycle import Stage
    from metalyard.runs import stages

    run = os.environ["METALYARD_RUN"]
    if verb == "open":
        names = ["gpu-r01-1", "gpu-r01-2", "gpu-r01-3"]
        check = "-check-" in run
        opening = stages.open_stage(site(state), Stage.DISCOVER, names, run=run, check=check)
        print(json.dumps({name: decision.kind for name, decision in opening.decisions.items()}))
    else:
        stages.close_stage(site(state), Stage.DISCOVER, run, hosts)


def running(mark):
    """Processes whose command line holds this text."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                status = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark in line and status != "Z":
                found[int(entry.name)] = line
    return found


def wait_until(true, seconds=20.0):
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    if sys.argv[1] in ("open", "close"):
        stage(sys.argv[1], sys.argv[2], sys.argv[3:])
        sys.exit()
    outcome = play(
        sys.argv[1],
        on_event=lambda event: print(event, flush=True),
        **dict(word.split("=", 1) for word in sys.argv[2:]),
    )
    print(outcome.message, outcome.next_step, sep="\n")
    sys.exit(outcome.exit_code)
