#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the mock NCCL plugins through net-nccl.

Usage: nccl_net_test.py TUTTI PLUGIN MOCKS jobs|files|kit|export [NAME...]

PLUGIN: the file of net-nccl. MOCKS: the folder of the mocks. jobs: an all-reduce over each version, whose results
`tutti bench` compares with a reference. files: wrong files and names, and the reasons that the user reads. kit: `tutti
plugin test` over each version. export FILE: a job and the kit over FILE, which is libnccl-net-tutti.so.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TUTTI, PLUGIN, MOCKS = sys.argv[1:4]
VERSIONS = range(6, 13)
# A plugin of one buffer at once ignores tags, as plugins over sockets do: NCCL gives each connection one tag.
# A connect of NCCL has no cancel. The connects of net-socket end when the listener answers, so some stay (NET-11).
KNOWN = {"single": {"NET-21", "NET-22"}, "tutti": {"NET-11"}}

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
# Each wrong name of a network: what the text must say.
WRONG_NAMES = {
    "network=socket:/x": r"the network 'socket' loads no file: .* write 'socket' instead of 'socket:/x'",
    "network=nccx:/x": r"there is no network plugin 'nccx'; did you mean 'nccl'\?",
    "plugins.network=[nccl:/x, nccl:/x]": r"plugins\.network names 'nccl:/x' twice",
    "network=nccl:/nowhere/x.so": r"the NCCL network plugin /nowhere/x\.so does not load",
}


def mock(name):
    """The file of a mock, or the path itself."""
    return name if "/" in name else os.path.join(MOCKS, f"libnccl-net-{name}.so")


def run(*words):
    done = subprocess.run([TUTTI, *words], capture_output=True, text=True, timeout=150, check=False)
    return done.returncode, done.stdout + done.stderr


def job(file, *settings):
    return job_of("network=nccl", f"settings.net.nccl.file={file}", *settings)


def job_of(*settings, words=()):
    settings = [f"plugins.path=[{os.path.dirname(PLUGIN)}]", "log.level=info", "timeouts.operation=20s", *settings]
    return run("bench", "all_reduce", "-n", "2", "--hosts", "a,b", "--min", "8", "--max", "4M", *words,
               *(part for setting in settings for part in ("--set", setting)))


def test_jobs(names):
    problems = 0
    for turn, name in enumerate(names):
        if turn % 2 == 0:
            code, output = job(mock(name), "check.plugins=true")
        else:
            code, output = job_of(f"network=nccl:{mock(name)}", "check.plugins=true")
        version = 9 if name == "single" else int(name.removeprefix("mock"))
        lines = [line for line in output.splitlines() if "NCCL network plugin" in line]
        told = re.search(rf"'{name}' \(.*libnccl-net-{name}\.so, ncclNetPlugin_v{version}\): devices {name}_0, "
                         rf"{name}_1; without: .*event descriptor", "\n".join(lines))
        bad = code != 0 or not told or "NET-" in output
        problems += bad
        print(f"{name}: {'fails' if bad else 'passes'}; {lines[0] if lines else 'no line'}", flush=True)
        if bad:
            print(output)
    return problems + test_order()


def test_order():
    """Of several files, the first that loads serves; a rule may exclude it by its name."""
    first, second = (f"nccl:{mock(name)}" for name in ("mock8", "mock12"))
    networks = f"plugins: {{network: [nccl:/nowhere/x.so, {first}, {second}]}}\n"
    problems = 0
    for rules, serves in (("", first), (f"rules: [forbid: {{network: {first}}}]\n", second)):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(networks + rules)
            file.flush()
            code, output = job_of("check.plugins=true", words=("--config", file.name))
        passed_over = "network 'nccl:/nowhere/x.so' is passed over"
        bad = code != 0 or f"/net-{serves}" not in output or passed_over not in output
        problems += bad
        print(f"{rules.strip() or 'no rules'}: {'FAILS' if bad else 'passes'}", flush=True)
        if bad:
            print(output)
    return problems


def test_trust():
    """Root refuses a file that other users may change, and every other user is warned."""
    with tempfile.TemporaryDirectory() as folder:
        file = shutil.copy(mock("mock9"), folder)
        os.chmod(file, 0o777)
        problems = 0
        for setting in (f"network=nccl:{file}", f"settings.net.nccl.file={file}"):
            code, output = job_of("network=nccl", setting)
            bad = (code == 0) == (os.geteuid() == 0) or not re.search(
                rf"TUTTI-P09 the file of the network 'nccl', {file} may be written by other users", output)
            problems += bad
            print(f"{setting}: {'FAILS' if bad else 'passes'}\n{output}", flush=True)
    return problems


def test_files(_names):
    problems = test_trust()
    for setting, text in WRONG_NAMES.items():
        code, output = job_of(setting)
        bad = code == 0 or not re.search(text, output)
        problems += bad
        print(f"{setting}: {'FAILS' if bad else 'passes'}\n{output}", flush=True)
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
        known = os.path.basename(name).removeprefix("libnccl-net-").removesuffix(".so")
        bad = failed - KNOWN.get(known, set()) or len(passed) < 50
        problems += bool(bad)
        print(f"{name}: {len(passed)} passed, failed: {sorted(failed) or 'none'}", flush=True)
        if bad:
            print(output)
    return problems


def test_export(files):
    """net-nccl over libnccl-net-tutti.so, which runs net-socket."""
    file, = files
    os.environ["TUTTI_NET"] = "socket"
    # A send of net-nccl also tests earlier sends, and each writes to a socket: small slots keep to rule NET-35.
    code, output = job_of(f"network=nccl:{file}", "check.plugins=true", "net.slot_size=16KiB")
    told = re.search(r"'Tutti' \(.*libnccl-net-tutti\.so, ncclNetPlugin_v12\): devices ", output)
    bad = code != 0 or not told or "NET-" in output
    print(f"job: {'FAILS' if bad else 'passes'}", flush=True)
    if bad:
        print(output)
    return bad + test_kit(files)


if __name__ == "__main__":
    chosen = sys.argv[5:] or [f"mock{version}" for version in VERSIONS] + ["single"]
    tests = {"jobs": test_jobs, "files": test_files, "kit": test_kit, "export": test_export}
    sys.exit(1 if tests[sys.argv[4]](chosen) else 0)
