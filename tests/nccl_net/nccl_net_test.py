#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the mock NCCL plugins through net-nccl.

Usage: nccl_net_test.py TUTTI PLUGIN MOCKS jobs|files|kit [NAME...]

PLUGIN: the file of net-nccl. MOCKS: the folder of the mocks. jobs: an all-reduce over each version, whose results
`tutti bench` compares with a reference. files: wrong files, and the reasons that the user reads. kit: `tutti plugin
test` over each version.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

TUTTI, PLUGIN, MOCKS = sys.argv[1:4]
VERSIONS = range(6, 13)
# A plugin of one buffer at once ignores tags, as plugins over sockets do: NCCL gives each connection one tag.
KNOWN = {"single": {"NET-21", "NET-22"}}

# Each wrong file: what the text must say, in this order.
WRONG = {
    "/nowhere/libnccl-net-x.so": r"/nowhere/libnccl-net-x\.so does not load: .*No such file.*settings\.net\.nccl\.file",
    "absent": r"libnccl-net-absent\.so does not load: .*NAME for a file libnccl-net-NAME\.so",
    "tableless": r"no table of a network plugin: looked for ncclNetPlugin_v12, .*ncclNetPlugin_v6; get a build",
    "old": r"looked for ncclNetPlugin_v12, .*it has ncclNetPlugin_v5, which is too old",
    "broken": r"'broken' \(.*, ncclNetPlugin_v11\): init fails with ncclSystemError: no cable in port 7",
    "deviceless": r"'deviceless' \(.*, ncclNetPlugin_v12\) finds no device",
    "": r"settings\.net\.nccl\.file is empty; set it to the path",
}


def mock(name):
    return os.path.join(MOCKS, f"libnccl-net-{name}.so")


def run(*words):
    done = subprocess.run([TUTTI, *words], capture_output=True, text=True, timeout=150, check=False)
    return done.returncode, done.stdout + done.stderr


def job(file, *settings):
    words = ["network=nccl", f"plugins.path=[{os.path.dirname(PLUGIN)}]", f"settings.net.nccl.file={file}",
             "log.level=info", "timeouts.operation=20s", *settings]
    return run("bench", "all_reduce", "-n", "2", "--hosts", "a,b", "--min", "8", "--max", "4M",
               *(part for word in words for part in ("--set", word)))


def test_jobs(names):
    problems = 0
    for name in names:
        code, output = job(mock(name), "check.plugins=true")
        version = 9 if name == "single" else int(name.removeprefix("mock"))
        lines = [line for line in output.splitlines() if "NCCL network plugin" in line]
        told = re.search(rf"'{name}' \(.*libnccl-net-{name}\.so, ncclNetPlugin_v{version}\): devices {name}_0, "
                         rf"{name}_1; without: .*event descriptor", "\n".join(lines))
        bad = code != 0 or not told or "NET-" in output
        problems += bad
        print(f"{name}: {'fails' if bad else 'passes'}; {lines[0] if lines else 'no line'}", flush=True)
        if bad:
            print(output)
    return problems


def test_files(_names):
    problems = 0
    for file, text in WRONG.items():
        code, output = job(mock(file) if file in ("tableless", "old", "broken", "deviceless") else file)
        bad = code == 0 or not re.search(text, output)
        problems += bad
        print(f"{file or 'no file'}: {'FAILS' if bad else 'passes'}\n{output}", flush=True)
    return problems


def test_kit(names):
    problems = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            _, output = run("plugin", "test", PLUGIN, "--where", "process,processes", "--json", report, "--set",
                            f"settings.net.nccl.file={mock(name)}")
            with open(report, encoding="utf-8") as stream:
                results = json.load(stream)["results"]
        passed = [one for one in results if one["result"] == "passed"]
        failed = {one["rule"] for one in results if one["result"] == "failed"}
        bad = failed - KNOWN.get(name, set()) or len(passed) < 50
        problems += bool(bad)
        print(f"{name}: {len(passed)} passed, failed: {sorted(failed) or 'none'}", flush=True)
        if bad:
            print(output)
    return problems


if __name__ == "__main__":
    chosen = sys.argv[5:] or [f"mock{version}" for version in VERSIONS] + ["single"]
    sys.exit(1 if {"jobs": test_jobs, "files": test_files, "kit": test_kit}[sys.argv[4]](chosen) else 0)
