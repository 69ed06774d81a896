#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `tutti plugin test` on mock algorithms, protocols and tuners with each of their faults, and on plugins without
faults.

Usage: kinds_test.py TUTTI FOLDER faults [NAME...]
       kinds_test.py TUTTI FOLDER job
       kinds_test.py TUTTI FOLDER clean FILE...
       kinds_test.py TUTTI FOLDER cuda_host FILE

FOLDER: of the mocks. faults: for each fault, runs the rule that must find it, and checks which rule is named. NAME:
"algo.stale_plan". job: runs ranks with an algorithm whose cost is wrong. clean: no rule may fail, for the mocks without
a fault and each FILE. cuda_host: FILE is the protocol whose faults are on GPUs alone; no rule about the host may fail.
"""
import os
import subprocess
import sys

import kit

TUTTI, FOLDER = sys.argv[1:3]

# Each fault: the rule to run, and the rule that must be named if it is a different rule.
FAULTS = {
    "algo": {
        "blocks": ("ALG-8", "ALG-1"),
        "throws": ("ALG-8", "ALG-2"),
        "no_reason": ("ALG-8", "ALG-3"),
        "crashes": ("ALG-8", "ALG-4"),
        "same_variants": ("ALG-5",),
        "endless_variants": ("ALG-5",),
        "unknown_collective": ("ALG-5",),
        "loses_rank": ("ALG-6",),
        "many_channels": ("ALG-7",),
        "stale_plan": ("ALG-8",),
        "wrong_decline": ("ALG-8",),
        "deadlock": ("ALG-9",),
        "forgets_rank": ("ALG-9",),
        "reads_late": ("ALG-9",),
        "partial_decline": ("ALG-10",),
        "nan_cost": ("ALG-11",),
        "negative_cost": ("ALG-11",),
        "small_fan": ("ALG-11",),
        "unknown_net": ("ALG-12",),
        "timed_search": ("ALG-13",),
        "history_plan": ("ALG-14",),
        "rank_plan": ("ALG-15",),
        "process_plan": ("ALG-16",),
        "racing_plan": ("ALG-17",),
    },
    "proto": {
        "blocks": ("PRO-7", "PRO-1"),
        "throws": ("PRO-7", "PRO-2"),
        "no_reason": ("PRO-6", "PRO-3"),
        "crashes": ("PRO-7", "PRO-4"),
        "no_fan": ("PRO-5",),
        "infinite_latency": ("PRO-5",),
        "unstable_properties": ("PRO-5",),
        "odd_slots": ("PRO-6",),
        "ragged_stride": ("PRO-6",),
        "small_slots": ("PRO-6",),
        "large_chunks": ("PRO-6",),
        "product_of_int8": ("PRO-7",),
        "forgets_average": ("PRO-7",),
        "forgets_scalar": ("PRO-7",),
        "gives_up": ("PRO-7",),
        "odd_end": ("PRO-8",),
        "large_calls": ("PRO-9",),
        "rounds_address": ("PRO-10",),
        "rounds_input": ("PRO-10",),
        "not_in_place": ("PRO-11",),
        "writes_beyond": ("PRO-12",),
        "changes_input": ("PRO-12",),
        "reversed_fold": ("PRO-13",),
        "sleeps": ("PRO-14",),
        "ignores_abort": ("PRO-15",),
        "ignores_digest": ("PRO-16",),
        "wrong_peer": ("PRO-16",),
        "spoils_direct": ("PRO-17",),
    },
    "tuner": {
        "blocks": ("TUN-5", "TUN-1"),
        "throws": ("TUN-5", "TUN-2"),
        "no_reason": ("TUN-5", "TUN-3"),
        "crashes": ("TUN-5", "TUN-4"),
        "refuses_large": ("TUN-5",),
        "refuses_type": ("TUN-5",),
        "no_channels": ("TUN-6",),
        "many_channels": ("TUN-6",),
        "silent_exclusion": ("TUN-6",),
        "nan": ("TUN-7",),
        "infinite": ("TUN-7",),
        "touches_excluded": ("TUN-8",),
        "changes_inputs": ("TUN-8",),
        "falls": ("TUN-9",),
        "remembers": ("TUN-10",),
        "rank_state": ("TUN-11",),
        "process_state": ("TUN-12",),
        "races": ("TUN-13",),
    },
}


def mock(kind):
    return os.path.join(FOLDER, f"tutti-{kind}-mock.so")


def find_fault(fault):
    """Why the kit does not find the fault; empty: it does."""
    kind, name = fault
    rules = FAULTS[kind][name]
    code, output, results = kit.run(TUTTI, mock(kind), "--rule", rules[0], "--set",
                                    f"settings.{kind}.mock.fault={name}")
    found = [one["violates"] for one in results if one["result"] == "failed"]
    if code == 1 and found == [rules[-1]]:
        return ""
    return f"{kind}.{name}: rule {rules[0]} must name {rules[-1]}; it names {found}, exit code {code}:\n{output}"


def test_faults(arguments):
    names = [(kind, name) for kind, faults in FAULTS.items() for name in faults
             if not arguments or f"{kind}.{name}" in arguments]
    return kit.run_faults(find_fault, names)


def test_job(_arguments):
    """A job refuses a step with more peers than its protocol takes, although the algorithm states fewer."""
    settings = [f"plugins.path=[{FOLDER}]", "plugins.algorithm=[mock]", "settings.algo.mock.fault=small_fan"]
    run = subprocess.run([TUTTI, "bench", "all_reduce", "-n", "66", "--threads", "--max", "8", "--iters", "1",
                          *(word for setting in settings for word in ("--set", setting))],
                         capture_output=True, text=True, timeout=100, check=False)
    expected = "a step of algorithm 'mock' has 65 peers, and protocol 'simple' takes 64"
    if run.returncode == 1 and expected in run.stderr:
        return 0
    print(f"exit code {run.returncode}, not 1 with '{expected}':\n{run.stdout}{run.stderr}")
    return 1


def test_clean(files):
    bad = 0
    for file in [mock(kind) for kind in FAULTS] + files:
        code, output, results = kit.run(TUTTI, file)
        passed = sum(one["result"] == "passed" for one in results)
        skipped = sum(one["result"] == "skipped" for one in results)
        seconds = sum(one["seconds"] for one in results)
        print(f"{os.path.basename(file)}: {passed} passed, {skipped} skipped, {seconds:.1f} s", flush=True)
        if code != 0 or passed == 0:
            bad += 1
            print(output)
    return 1 if bad else 0


def test_cuda_host(files):
    bad = 0
    for fault in ("none", "wrong_product", "writes_before"):
        rules = [word for number in range(5, 18) for word in ("--rule", f"PRO-{number}")]
        code, output, results = kit.run(TUTTI, files[0], *rules, "--set", f"settings.proto.mock_cuda.fault={fault}")
        if code != 0 or [one["result"] for one in results] != ["passed"] * 13:
            bad += 1
            print(f"{fault}: a rule about the host fails\n{output}")
    return 1 if bad else 0


if __name__ == "__main__":
    os.environ.pop("TUTTI_LOG", None)
    tests = {"faults": test_faults, "job": test_job, "clean": test_clean, "cuda_host": test_cuda_host}
    sys.exit(tests[sys.argv[3]](sys.argv[4:]))
