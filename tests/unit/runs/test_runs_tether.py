"""Processes that end with the one they belong to."""

import json
import os
import signal
import subprocess
import sys

import pytest
from playing import running, wait_until

from metalyard.runs import tether

CHILD = """
import os, sys, time
from metalyard.runs.tether import tether
child = os.fork()
if child == 0:
    tether()
    os.execvp("sleep", ["sleep", sys.argv[1]])
print("ready", flush=True)
time.sleep(100)
"""


def test_a_tethered_child_ends_with_its_parent():
    process = subprocess.Popen([sys.executable, "-c", CHILD, "91.5"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    assert wait_until(lambda: running("sleep 91.5") and "-c" not in str(running("sleep 91.5")))
    process.kill()
    process.wait(10)
    assert wait_until(lambda: not running("sleep 91.5"), 5)


def test_a_child_whose_parent_has_died_already_ends_at_once():
    program = "from metalyard.runs.tether import tether\ntether(parent=1)\nprint('still here')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (128 + signal.SIGKILL, "")


@pytest.fixture
def supervise(tmp_path):
    """Starts a command under a supervisor whose controller is this process."""
    channel = tmp_path / "channel"
    started = []

    def begin(*command, remove=(), grace=None, **environment):
        given = {"environment": {"PATH": os.environ["PATH"], **environment}, "remove": list(map(str, remove))}
        channel.write_text(json.dumps(given))
        line = tether.supervised(list(command), str(channel))
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"OWN": "1"})
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)])
def test_the_status_is_the_commands(supervise, script, status):
    process = supervise("sh", "-c", script)
    process.communicate(timeout=30)
    assert process.returncode == status


def test_the_environment_comes_by_the_channel_and_files_are_removed(supervise, tmp_path):
    secret = tmp_path / "extra"
    secret.write_text("x")
    process = supervise("sh", "-c", 'echo "$SECRET $OWN"', remove=[secret], SECRET="hunter2", OWN="0")
    assert process.communicate(timeout=30)[0] == "hunter2 1\n"
    assert not secret.exists()


def test_a_command_that_is_not_there_is_said(supervise):
    process = supervise("no-such-command")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 127
    assert "no-such-command can't be started" in said


def test_asked_to_stop_everything_below_ends_even_what_left_the_session(supervise):
    script = "setsid sh -c 'trap \"\" TERM; sleep 92.5; sleep 92.5' & (setsid sleep 92.5 &) ; sleep 92.5"
    process = supervise("sh", "-c", script)
    assert wait_until(lambda: len([line for line in running("sleep 92.5").values() if line == "sleep 92.5 "]) == 3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert not running("sleep 92.5")


def test_asked_twice_it_waits_for_nobody(supervise):
    process = supervise("sh", "-c", "trap '' TERM; while :; do sleep 0.35; done")
    assert wait_until(lambda: "sleep 0.35 " in running("sleep 0.35").values())
    process.send_signal(signal.SIGINT)
    assert not wait_until(lambda: process.poll() is not None, 1.0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 137
    assert not running("while :; do sleep 0.35")


def test_what_ended_well_leaves_daemons_alone(supervise):
    process = supervise("sh", "-c", "setsid sleep 3.75 > /dev/null 2>&1 & exit 0")
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert running("sleep 3.75")


def test_marked_processes_are_found_wherever_they_went():
    mark = f"METALYARD_RUN=test-{os.getpid()}"
    name, value = mark.split("=")
    command = ["sh", "-c", "setsid sleep 93.5 & sleep 93.5"]
    process = subprocess.Popen(command, env={**os.environ, name: value})
    assert wait_until(lambda: len(running("sleep 93.5")) == 3)
    assert tether.end_marked(mark)
    process.wait(10)
    assert not running("sleep 93.5")
    assert tether.end_marked(mark)
