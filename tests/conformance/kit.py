# SPDX-License-Identifier: Apache-2.0
"""Runs of `tutti plugin test`, for the tests of the kit."""
import concurrent.futures
import json
import os
import subprocess
import tempfile


def run(tutti, file, *options):
    """Exit code, output and results of a run of the kit."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        junit = os.path.join(folder, "report.xml")
        done = subprocess.run([tutti, "plugin", "test", file, "--json", report, "--junit", junit, *options],
                              capture_output=True, text=True, timeout=600, check=False)
        results = []
        if os.path.exists(report):
            with open(report, encoding="utf-8") as stream:
                results = json.load(stream)["results"]
            with open(junit, encoding="utf-8") as stream:
                assert stream.read().count("<testcase") == len(results), "JUnit and JSON differ"
        return done.returncode, done.stdout + done.stderr, results


def run_faults(find, faults):
    """The exit code. `find`: the problem with a fault, as text; empty: the kit finds it."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        problems = [text for text in pool.map(find, faults) if text]
    for text in problems:
        print(text)
    print(f"{len(faults) - len(problems)} of {len(faults)} faults are found and named by their rules")
    return 1 if problems else 0
