#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs all tests with faults, and prints one table of their results.

suite.py BUILD                      one short round of all kinds, in a minute or two
suite.py BUILD --long [SECONDS]     rounds with random times and random programs for an hour, or this long
suite.py BUILD --only kills cuts    the named kinds

BUILD is a build folder with the tool and the tests. Kinds that need root are left out without it, and reported. Each
round of --long has 100 kills, 20 cuts of 1 s to 15 s, 2 cuts in an all_reduce of 1 GiB, 10 stops, 100 pairs of
programs, 2,000 strangers of each kind at every port, and 2,000 strangers while ranks join. The failures stand in
--log, with the seeds that repeat them.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field

from tally import Tally, heard, table

FOLDER = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
LIMIT_S = 1800  # limit of one test


@dataclass
class Kind:
    """A test, and how much of it one round runs."""
    name: str
    program: str  # a script of this folder, or a program of the build
    short: list = field(default_factory=list)
    long: list = field(default_factory=list)
    variables: dict = field(default_factory=dict)  # {name: (short, long)} of the environment
    only_long: bool = False  # too long for the short round


KINDS = [
    Kind("kills", "kill_test.py", [], ["--long", "100"]),
    Kind("cuts", "cut_test.py", [], ["--long", "20", "--parallel", "8"]),
    Kind("large-cuts", "large_cut_test.py", only_long=True),
    Kind("fail-overs", "failover_test.py", only_long=True),
    Kind("stops", "stop_test.py", [], ["--long", "10"]),
    Kind("programs", "fault_programs_test", variables={"PROGRAM_PAIRS": ("20", "100")}),
    Kind("strangers", "strangers_test.py"),
    Kind("joins", "crowded_join_test.py"),
    Kind("calls", "fault_calls_test"),
    Kind("leaves", "fault_leave_test"),
    Kind("forks", "fault_fork_test"),
    Kind("aborts", "fault_abort_test"),
    Kind("waits", "fault_wait_test"),
]


class Suite:
    """Adds up the counts that the tests print."""

    def __init__(self, build, is_long, log):
        self.build, self.is_long, self.log = build, is_long, log
        self.tallies, self.skipped = {}, {}

    def command(self, kind):
        if kind.program.endswith(".py"):
            return [sys.executable, str(FOLDER / kind.program), str(self.build / "bin/tutti"),
                    *(kind.long if self.is_long else kind.short)]
        return [str(self.build / "tests" / kind.program)]

    def run(self, kind):
        environment = os.environ | {name: values[self.is_long] for name, values in kind.variables.items()}
        command = self.command(kind)
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                  env=environment, timeout=LIMIT_S)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            status, output = "time-out", (error.stdout or b"").decode()
        if status == SKIPPED:
            self.skipped[kind.name] = output.strip().splitlines()[-1]
            return
        told = heard(output) or [counted(kind.name, output)]
        if status != 0:
            self.log.write(f"--- {' '.join(command)}: {status}\n{output}\n")
            self.log.flush()
            if not any(one.problems for one in told):  # it ended in a way of which it did not tell
                told[0].problems += 1
        for one in told:
            self.tallies.setdefault(one.kind, Tally(one.kind)).add(one)

    def report(self):
        """Prints the table; whether all is as it must be."""
        print(table(self.tallies.values()))
        for name, reason in self.skipped.items():
            print(f"left out: {name}: {reason}")
        return not any(one.problems for one in self.tallies.values())


def counted(name, output):
    """Of a GoogleTest program: a run is a test, and completes if it passes."""
    passed = len(re.findall(r"^\[       OK \]", output, re.M))
    failed = len(set(re.findall(r"^\[  FAILED  \] (\w+\.\w+) \(", output, re.M)))
    return Tally(f"tests of {name}", passed + failed, 0, passed, 0, 0, failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--long", type=int, nargs="?", const=3600, default=0, metavar="SECONDS")
    parser.add_argument("--only", nargs="+", choices=[kind.name for kind in KINDS])
    parser.add_argument("--log", type=pathlib.Path, default=None, help="BUILD/fault-suite.log")
    request = parser.parse_args()
    build = request.build.resolve()
    kinds = [kind for kind in KINDS if kind.name in request.only] if request.only else \
        [kind for kind in KINDS if request.long > 0 or not kind.only_long]
    log = request.log or build / "fault-suite.log"
    began, rounds = time.monotonic(), 0
    with open(log, "w", encoding="utf-8") as failures:
        suite = Suite(build, request.long > 0, failures)
        while rounds == 0 or time.monotonic() - began < request.long:
            rounds += 1
            for kind in kinds:
                if kind.name not in suite.skipped:
                    suite.run(kind)
                    print(f"{time.monotonic() - began:6.0f} s  round {rounds}: {kind.name}", flush=True)
    good = suite.report()
    print(f"{rounds} rounds, {time.monotonic() - began:.0f} s" + ("" if good else f"; the failures stand in {log}"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
