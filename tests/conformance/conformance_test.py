#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `tutti plugin test` on the mock network with each of its faults, and on networks without faults.

Usage: conformance_test.py TUTTI MOCK faults [--whole] [NAME...]
       conformance_test.py TUTTI MOCK clean FILE WHERE [RUNS]
       conformance_test.py TUTTI MOCK device_memory
       conformance_test.py TUTTI MOCK open
       conformance_test.py TUTTI MOCK watchdog
       conformance_test.py TUTTI MOCK timeout
       conformance_test.py TUTTI MOCK checked [NAME...]

faults: for each fault, runs the rule that must find it, in one process or two. --whole runs all rules instead, and
prints all that find the fault. clean: no rule may fail. device_memory: TUTTI is the tool that pretends to have GPUs;
the rule about memory of GPUs finds the fault that concerns it, and passes without a fault. open: if a plugin hangs or
ends the process before the rules, the kit ends with a text that names the file and the step. watchdog: a job whose
plugin hangs ends by its deadline. timeout: the time-out of a job over a network that never connects names its
connection. checked: with check.plugins or check.data, a job over a network with a fault that a job can see names its
rule; a job without a fault ends well.
"""
import os
import re
import subprocess
import sys
import time

import kit

TUTTI, MOCK = sys.argv[1:3]
BOTH = "process"
TWO = "processes"

# Each fault: the rule to run, the rule that must be named, and where.
FAULTS = {
    "lost": ("NET-13", "NET-13", BOTH),
    "doubled": ("NET-20", "NET-20", BOTH),
    "swapped": ("NET-13", "NET-13", BOTH),
    "corrupted": ("NET-14", "NET-14", BOTH),
    "truncated": ("NET-16", "NET-16", BOTH),
    "wrong_length": ("NET-14", "NET-14", BOTH),
    "room_as_length": ("NET-14", "NET-14", BOTH),
    "writes_beyond": ("NET-14", "NET-14", BOTH),
    "loses_empty": ("NET-15", "NET-15", BOTH),
    "rounds_address": ("NET-17", "NET-17", BOTH),
    "few_requests": ("NET-18", "NET-18", BOTH),
    "early_receive": ("NET-19", "NET-19", BOTH),
    "early_send": ("NET-19", "NET-19", BOTH),
    "ignores_tags": ("NET-21", "NET-21", BOTH),
    "no_groups": ("NET-22", "NET-22", BOTH),
    "group_lengths": ("NET-22", "NET-22", BOTH),
    "ignores_room": ("NET-23", "NET-23", BOTH),
    "ignores_offset": ("NET-25", "NET-25", BOTH),
    "leaks_requests": ("NET-26", "NET-26", BOTH),
    "leaks_descriptors": ("NET-27", "NET-27", BOTH),
    "leaks_listeners": ("NET-39", "NET-39", BOTH),
    "leaks_contexts": ("NET-39", "NET-39", BOTH),
    "leaks_cancelled": ("NET-11", "NET-11", TWO),
    "uses_after_close": ("NET-30", "NET-30", BOTH),
    "reads_after_close": ("NET-31", "NET-31", TWO),
    "end_before_data": ("NET-28", "NET-28", BOTH),
    "silent_end": ("NET-29", "NET-29", BOTH),
    "wrong_code": ("NET-29", "NET-29", BOTH),
    "no_reason": ("NET-23", "NET-3", BOTH),
    "blocking_test": ("NET-13", "NET-1", BOTH),
    "blocking_connect": ("NET-9", "NET-9", BOTH),
    "slow_test": ("NET-35", "NET-35", BOTH),
    "sleeping_send": ("NET-35", "NET-35", BOTH),
    "throwing_send": ("NET-13", "NET-2", BOTH),
    "crashes": ("NET-8", "NET-4", BOTH),
    "never_connects": ("NET-8", "NET-8", BOTH),
    "stranger_fails": ("NET-12", "NET-12", BOTH),
    "stranger_blocks": ("NET-12", "NET-1", TWO),
    "lying_arm": ("NET-36", "NET-36", BOTH),
    "sleepless_arm": ("NET-37", "NET-37", BOTH),
    "closed_event_fd": ("NET-7", "NET-7", BOTH),
    "unstable_devices": ("NET-5", "NET-5", BOTH),
    "no_host_memory": ("NET-6", "NET-6", BOTH),
    "control_name": ("NET-6", "NET-6", BOTH),
    "blocks_stopped": ("NET-33", "NET-1", TWO),
}

# The same for faults with memory of GPUs.
DEVICE_FAULTS = {
    "missing_flush": ("NET-38", "NET-38", BOTH),
}


def failures(results):
    return [one for one in results if one["result"] == "failed"]


def find_fault(name):
    """Why the kit does not find the fault; empty: it does."""
    return find(name, *FAULTS[name])


def find(name, rule, named, where, *settings):
    code, output, results = kit.run(TUTTI, MOCK, "--rule", rule, "--where", where, "--set",
                                    f"settings.net.mock.fault={name}", *settings)
    found = [one["violates"] for one in failures(results)]
    if code == 1 and found == [named]:
        return ""
    return f"{name}: rule {rule} must name {named}; it names {found}, exit code {code}:\n{output}"


def find_whole(name):
    _, output, results = kit.run(TUTTI, MOCK, "--where", "process,processes", "--set",
                                 f"settings.net.mock.fault={name}")
    found = {one["violates"] for one in failures(results)}
    print(f"{name:18} {' '.join(sorted(found, key=lambda rule: int(rule[4:])))}", flush=True)
    return "" if FAULTS[name][1] in found else f"{name} is not found:\n{output}"


def check_failing_create():
    """A plugin that fails before the rules begin fails once, and all further rules are skipped. Returns the problem."""
    code, output, results = kit.run(TUTTI, MOCK, "--where", "process", "--set",
                                    "settings.net.mock.fault=failing_create")
    ran = [one for one in results if one["result"] != "skipped"]
    late = [one for one in results if "the plugin has failed before the rule began" in one.get("text", "")]
    if code == 1 and len(ran) == 1 and ran[0]["result"] == "failed" and len(late) > 20 and "no licence" in output:
        return ""
    return f"failing_create: {len(ran)} rules ran, exit code {code}:\n{output}"


def test_faults(arguments):
    whole = "--whole" in arguments
    names = [name for name in arguments if name != "--whole"]
    if not names and not whole and (problem := check_failing_create()):
        print(problem)
        return 1
    return kit.run_faults(find_whole if whole else find_fault, names or list(FAULTS))


def test_device_memory(_arguments):
    dmabufs = ("--set", "settings.net.mock.dmabufs=true")
    code, output, results = kit.run(TUTTI, MOCK, "--rule", "NET-38", "--where", "process,processes", *dmabufs)
    if code != 0 or [one["result"] for one in results] != ["passed", "passed"]:
        print(f"the mock without a fault breaks the rule about memory of GPUs:\n{output}")
        return 1
    return kit.run_faults(lambda name: find(name, *DEVICE_FAULTS[name], *dmabufs), list(DEVICE_FAULTS))


def test_clean(arguments):
    file, where = arguments[:2]
    least = 29 * len([place for place in where.split(",") if place != "namespaces" or os.geteuid() == 0])
    for run in range(int(arguments[2]) if len(arguments) > 2 else 1):
        begin = time.monotonic()
        code, output, results = kit.run(TUTTI, file, "--where", where)
        passed = sum(one["result"] == "passed" for one in results)
        print(f"run {run + 1}: {passed} passed, {len(failures(results))} failed in {time.monotonic() - begin:.1f} s")
        if failures(results) or code != 0 or passed < least:
            print(output)
            return 1
    return 0


# Each fault before the rules: the step, what happens in it, and the rule that the text names. "load": of the image.
OPENINGS = {
    "load blocks": ("static initialisers", "no return for 10 s", "PLG-3"),
    "load crashes": ("static initialisers", "ended by signal Aborted", "PLG-3"),
    "blocking_open": ("entry 'open'", "no return for 10 s", "NET-1"),
    "crashing_open": ("entry 'open'", "ended by signal Aborted", "NET-4"),
    "crashing_close": ("entry 'close'", "ended by signal Aborted", "NET-4"),
}


def check_opening(name):
    """Why the kit does not tell of the fault; empty: it does."""
    environment, fault = dict(os.environ), name
    if name.startswith("load "):
        environment["MOCK_LOAD_FAULT"] = name.split()[1]
        fault = "none"
    try:
        done = subprocess.run([TUTTI, "plugin", "test", MOCK, "--rule", "NET-5", "--where", "process", "--set",
                               f"settings.net.mock.fault={fault}"],
                              capture_output=True, text=True, timeout=60, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return f"{name}: the kit does not end within 60 s"
    last = done.stderr.splitlines()[-1] if done.stderr else ""
    print(f"{name}: {last}", flush=True)
    expected = ("tutti: ", os.path.abspath(MOCK), *OPENINGS[name])
    if done.returncode == 1 and all(part in last for part in expected):
        return ""
    return (f"{name}: exit code {done.returncode}, the last line lacks a part of {expected}:\n"
            f"{done.stdout}{done.stderr}")


def test_open(arguments):
    return kit.run_faults(check_opening, arguments or list(OPENINGS))


def job(fault, *settings, size=8):
    """Exit code, output and seconds of a job of two ranks over the mock network."""
    begin = time.monotonic()
    words = ["network=mock", "plugins.network=[mock]", f"settings.net.mock.fault={fault}", *settings,
             f"plugins.path=[{os.path.dirname(os.path.abspath(MOCK))}]"]
    done = subprocess.run(
        [TUTTI, "bench", "all_reduce", "-n", "2", "--hosts", "a,b", "--min", str(size), "--max", str(size),
         *(part for word in words for part in ("--set", word))],
        capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begin


# Each fault that a job can see: the rule that the job must name, the size of the call, and further settings.
CHECKED = {
    "lost": ("NET-13", "256K", "net.slot_size=4K"),
    "doubled": ("NET-20", "256K", "net.slot_size=4K"),
    "swapped": ("NET-13", "4M", "net.slot_size=64K"),
    "corrupted": ("check.data, NET-14", "256K", "net.slot_size=4K", "check.data=true"),
    "truncated": ("NET-14", "8M", "net.slot_size=2M"),
    "wrong_length": ("NET-14", "64K"),
    "room_as_length": ("NET-14", "64K"),
    "writes_beyond": ("NET-14", "64K"),
    "early_receive": ("NET-19", "64K"),
    "slow_test": ("NET-35", "8"),
    "sleeping_send": ("NET-35", "1M", "net.slot_size=4K"),
    "throwing_send": ("NET-2", "256K", "net.slot_size=4K"),
    "blocking_connect": ("NET-9", "8"),
    "closed_event_fd": ("NET-7", "8"),
    "unstable_devices": ("NET-5", "8"),
    "no_host_memory": ("NET-6", "8"),
}


def check_job(name):
    """Why the job does not name the rule; empty: it does."""
    rule, size, *settings = CHECKED[name]
    code, output, _ = job(name, "check.plugins=true", "timeouts.operation=20s", *settings, size=size)
    print(f"{name}: {next((line for line in output.splitlines() if rule in line), 'not found')[:400]}", flush=True)
    return "" if code != 0 and rule in output and "mock" in output else f"{name}: {rule} is not named:\n{output}"


def test_checked(arguments):
    problems = [text for text in map(check_job, arguments or CHECKED) if text]
    for settings in (["check.plugins=true"], ["check.data=true"], ["check.plugins=true", "check.data=true"]):
        for size in ("8", "1M"):
            code, output, _ = job("none", *settings, size=size)
            if code != 0 or "NET-" in output:
                problems.append(f"a job without a fault fails, {settings}:\n{output}")
    for text in problems:
        print(text)
    return 1 if problems else 0


def test_timeout(_arguments):
    code, output, _ = job("never_connects", "timeouts.operation=2s")
    print(output)
    assert code != 0, "the job ends without a failure"
    assert re.search(r"no progress for 2 s \(timeouts.operation\); rank \d waits for rank \d; network 'mock', .*"
                     r"from rank \d \(host [ab], unix0\) to rank \d \(host [ab], unix0\): not connected: connect has "
                     r"not ended", output), "the time-out does not name the connection"
    return 0


def test_watchdog(_arguments):
    """A job over a network whose entry `test` never returns."""
    code, output, seconds = job("blocking_test", "timeouts.operation=4s")
    print(output)
    lines = [line for line in output.splitlines() if " warn " in line and "has not returned" in line]
    assert lines, "the watchdog is silent"
    for line in lines:
        assert re.search(r"network 'mock'.*'test'.*has not returned for .* s.*rank \d.*unix0", line), line
    assert code != 0, "the job ends without a failure"
    assert seconds < 40, f"the job ends after {seconds:.0f} s"
    print(f"the job ended after {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    os.environ.pop("TUTTI_LOG", None)
    sys.exit({"faults": test_faults, "clean": test_clean, "device_memory": test_device_memory, "open": test_open,
              "watchdog": test_watchdog, "checked": test_checked, "timeout": test_timeout}[sys.argv[3]](sys.argv[4:]))
