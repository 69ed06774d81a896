#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes small mistakes in the code, one at a time, and runs the tests that should notice.

The mistakes are in scripts/mutations/*.txt (README.md there has the format). Each is made in a copy of the sources
below build/mutants, which has a build folder of its own. A mutant is killed if a test fails or exceeds its time, and
survives if all tests pass. The exit status is 1 if a mutant survives for which no reason is stated.

    scripts/mutate.py                     # all; results are kept in build/mutants/results.json
    scripts/mutate.py --resume            # mutations that were not killed, or whose file has changed since
    scripts/mutate.py --only core/program    # mutations whose file or text contains this
    scripts/mutate.py --check             # only: does every entry apply at exactly one place?
"""

import argparse
import hashlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTS = ROOT / "scripts/mutations"
WORK = ROOT / "build/mutants"
RESULTS = WORK / "results.json"
# Tests without a program of their own: the targets that they need.
TARGETS = {"matrix": ["matrix_test", "product"], "matrix_small": ["matrix_test", "product"],
           "random_calls": ["random_calls_test", "product"], "random_calls_small": ["random_calls_test", "product"],
           "fault_calls_test": ["fault_calls_test", "product"], "fault_leave_test": ["fault_leave_test", "product"],
           "tool": ["product"], "tool_config": ["product", "plugin_test"], "topo": ["product"], "search": ["product"],
           "recursive": ["product", "tutti-algo-recursive"], "tune": ["product"], "fault_kill": ["product"]}
LONGEST_S = 600  # time limit of a build
CHILDREN = set()  # process groups that run now


@dataclass
class Mutation:
    """One entry of a list."""
    place: str  # "core.txt:12", for messages
    file: str
    tests: list  # of ctest
    filter: str = ""  # of GoogleTest; empty: all
    old: list = field(default_factory=list)
    new: list = field(default_factory=list)
    reason: str = ""  # why no test can notice

    def texts(self):
        return "\n".join(self.old), "\n".join(self.new)

    def apply(self, text):
        """The text with the mistake. Fails unless the old text is there exactly once."""
        old, new = self.texts()
        count = text.count(old)
        if not old or old == new or count != 1:
            problem = "the text to replace is empty or stays the same" if not old or old == new else \
                f"the text to replace stands there {count} times"
            raise ValueError(f"{self.place}: {self.file}: {problem}: {old!r}")
        return text.replace(old, new)

    def line(self):
        return self.source().split(self.texts()[0])[0].count("\n") + 1

    def source(self):
        return (ROOT / self.file).read_text()

    def key(self):
        parts = [self.file, *self.texts(), *self.tests, self.filter, self.source()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def summary(self):
        old, new = (" ".join(text.split()) for text in self.texts())
        return f"{old or '(nothing)'} → {new or '(removed)'}"


def read_list(path):
    """The entries of a file."""
    mutations, header, entry = [], None, None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        place = f"{path.name}:{number}"
        kind, text = line[:1], line[2:]
        if kind == "@":
            match = re.fullmatch(r"(\S+): ([\w ]+?)(?: \[(\S+)\])?", text)
            if not match:
                sys.exit(f"{place}: expected '@ FILE: TEST... [FILTER]'")
            header, entry = match, None
        elif kind == "-":
            if header is None:
                sys.exit(f"{place}: an entry needs a line '@ FILE: TEST...' before it")
            if entry is None or entry.new:
                entry = Mutation(place, header[1], header[2].split(), header[3] or "")
                mutations.append(entry)
            entry.old.append(text)
        elif kind == "+" and entry is not None:
            entry.new.append(text)
        elif kind == "=" and entry is not None:
            entry.reason = (entry.reason + " " + text).strip()
        elif kind not in ("", "#"):
            sys.exit(f"{place}: begins with none of '@', '-', '+', '=', '#'")
    return mutations


def testable():
    """The names of tests that the script can build: tests with a program of their own, and tests in TARGETS."""
    text = "".join(path.read_text() for path in ROOT.glob("tests/**/*.cmake"))
    text += "".join(path.read_text() for path in ROOT.glob("tests/**/CMakeLists.txt"))
    return set(re.findall(r"tutti_test\((\w+)", text)) | set(TARGETS)


def check(mutations):
    """Problems of the entries."""
    problems, known, seen = [], testable() | {"config_test", "config_error_test", "config_mutation_test"}, {}
    for mutation in mutations:
        try:
            mutation.apply(mutation.source())
        except (ValueError, OSError) as error:
            problems.append(str(error))
        problems += [f"{mutation.place}: no program and no entry of TARGETS is called '{test}'"
                     for test in mutation.tests if test not in known]
        same = (mutation.file, *mutation.texts())
        if same in seen:
            problems.append(f"{mutation.place}: is the same as {seen[same]}")
        seen[same] = mutation.place
    return problems


def run(command, folder, limit_s, **environment):
    """The exit status and the output; status None: it took too long. Its children end with it."""
    with subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        CHILDREN.add(process.pid)
        try:
            output, _ = process.communicate(timeout=limit_s)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
        finally:
            CHILDREN.discard(process.pid)


class Copy:
    """A copy of the sources and its build, of one thread."""

    def __init__(self, number, cores):
        self.root = WORK / str(number)
        self.build = "build/release"  # ccache has the objects of a release from this folder
        self.cores = cores
        self.limits = {}  # time limits of tests, by (tests, filter)

    def update(self):
        """Makes the copy equal to the sources; equal files keep their times."""
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.splitlines()
        for name in files:
            source, copy = ROOT / name, self.root / name
            if not source.is_file():
                continue
            text = source.read_bytes()
            if copy.exists() and copy.read_bytes() == text:
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(text)
            shutil.copymode(source, copy)
        options = ["-DTUTTI_BENCH=OFF"]
        if shutil.which("ld.lld"):
            options += [f"-DCMAKE_{kind}_LINKER_FLAGS=-fuse-ld=lld" for kind in ("EXE", "SHARED", "MODULE")]
        status, output = run(["cmake", "--preset", "release", *options], self.root, LONGEST_S)
        if status != 0:
            sys.exit(output)

    def make(self, tests, limit_s=LONGEST_S):
        """Builds the targets of the tests. Returns the status and the output."""
        targets = sorted({target for test in tests for target in TARGETS.get(test, [test])})
        return run(["cmake", "--build", self.build, f"-j{self.cores}", "--target", *targets], self.root, limit_s)

    def test(self, mutation, limit_s):
        names = "|".join(mutation.tests)
        environment = {"GTEST_FAIL_FAST": "1", "GTEST_BRIEF": "1"}
        if mutation.filter:
            environment["GTEST_FILTER"] = mutation.filter
        command = ["ctest", "--test-dir", self.build, "-R", f"^({names})$", "--stop-on-failure", "--no-tests=error",
                   "--output-on-failure"]
        return run(command, self.root, limit_s, **environment)

    def prepare(self, mutation):
        """The limit for the tests of a mutant: they must pass without it first."""
        key = (*mutation.tests, mutation.filter)
        if key in self.limits:
            return
        status, output = self.make(mutation.tests, 4 * LONGEST_S)
        if status != 0:
            sys.exit(f"{output}\n{mutation.place}: the unchanged sources do not build")
        start = time.monotonic()
        status, output = self.test(mutation, LONGEST_S)
        if status != 0:
            sys.exit(f"{output}\n{mutation.place}: a test fails on the unchanged sources")
        self.limits[key] = 10 + 5 * (time.monotonic() - start)

    def try_out(self, mutation):
        """The result of a mutant: 'killed', 'survived' or 'broken' (it does not compile)."""
        self.prepare(mutation)
        path = self.root / mutation.file
        original = path.read_text()
        try:
            path.write_text(mutation.apply(original))
            status, output = self.make(mutation.tests)
            if status != 0:
                return "broken", output
            status, output = self.test(mutation, self.limits[(*mutation.tests, mutation.filter)])
            return ("survived" if status == 0 else "killed"), output
        finally:
            path.write_text(original)


class Runner:
    """Tries mutants out, several at a time, and keeps the results."""

    def __init__(self, mutations, jobs):
        self.mutations = mutations
        self.results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        self.lock = threading.Lock()
        self.queue = queue.Queue()
        self.jobs = jobs
        self.failure = None

    def run(self):
        by_tests = {}
        for mutation in self.mutations:  # mutations with common tests in a row: their builds serve again
            by_tests.setdefault(mutation.tests[0], []).append(mutation)
        for group in by_tests.values():
            self.queue.put(group)
        cores = max(1, len(os.sched_getaffinity(0)) // self.jobs)
        threads = [threading.Thread(target=self.work, args=(Copy(i, cores),), daemon=True) for i in range(self.jobs)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.failure = "interrupted; --resume goes on"
            for child in list(CHILDREN):
                os.killpg(child, signal.SIGKILL)
        if self.failure is not None:
            sys.exit(self.failure)

    def work(self, copy):
        try:
            copy.update()
            while self.failure is None:
                for mutation in self.queue.get_nowait():
                    self.keep(mutation, copy)
        except queue.Empty:
            pass
        except (SystemExit, Exception) as error:  # pylint: disable=broad-except
            self.failure = str(error)

    def keep(self, mutation, copy):
        if self.failure is not None:
            return
        start = time.monotonic()
        verdict, output = copy.try_out(mutation)
        with self.lock:
            self.results[mutation.key()] = verdict
            RESULTS.write_text(json.dumps(self.results, indent=0))
            print(f"{verdict:8} {time.monotonic() - start:5.0f} s  {mutation.file}:{mutation.line()}  "
                  f"{mutation.summary()[:140]}", flush=True)
            if verdict == "broken":
                print(output[-3000:], flush=True)


def folder_of(file):
    parts = pathlib.PurePath(file).parts
    depth = 4 if parts[:2] == ("core", "include") else 2
    return "/".join(parts[:min(depth, len(parts) - 1)])


def report(mutations, results):
    """Prints the table and the survivors. Returns the number of unexpected survivors."""
    rows, bad = {}, []
    for mutation in mutations:
        verdict = results.get(mutation.key(), "not run")
        if mutation.reason and verdict in ("survived", "not run"):
            verdict = "stated"
        rows.setdefault(folder_of(mutation.file), []).append(verdict)
        if verdict in ("survived", "broken") or (verdict == "killed" and mutation.reason):
            bad.append((verdict, mutation))
    verdicts = ("killed", "stated", "survived", "broken", "not run")
    print(f"\n| folder | mutants | killed | equivalent | survived | does not compile | not run |\n|---|{'---:|' * 6}")
    for folder, found in [*sorted(rows.items()), ("all", [v for row in rows.values() for v in row])]:
        print(f"| {folder} | {len(found)} | " + " | ".join(str(found.count(verdict)) for verdict in verdicts) + " |")
    for verdict, mutation in bad:
        note = ", but the list says that no test can notice" if mutation.reason else ""
        print(f"\n{verdict}{note}: {mutation.file}:{mutation.line()} ({mutation.place}; {' '.join(mutation.tests)})")
        print(f"  {mutation.summary()}")
    return len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check that every entry applies at one place")
    parser.add_argument("--only", metavar="TEXT", default="", help="mutants whose file, text or tests contain it")
    parser.add_argument("--jobs", type=int, default=1, help="copies that are built and tested at a time")
    parser.add_argument("--resume", action="store_true", help="leave out those that were killed before")
    parser.add_argument("--report", action="store_true", help="only print the table of the results there are")
    parser.add_argument("--equivalent", action="store_true", help="also run those of which no test can take notice")
    arguments = parser.parse_args()
    mutations = [mutation for path in sorted(LISTS.glob("*.txt")) for mutation in read_list(path)]
    problems = check(mutations)
    if problems:
        sys.exit("\n".join(problems))
    mutations = [m for m in mutations if arguments.only in " ".join([m.file, *m.texts(), *m.tests])]
    print(f"{len(mutations)} mutations, each applies at one place")
    if arguments.check:
        return
    WORK.mkdir(parents=True, exist_ok=True)
    runner = Runner([], arguments.jobs)
    if not arguments.report:
        wanted = [m for m in mutations if not m.reason or arguments.equivalent]
        runner.mutations = [m for m in wanted if not arguments.resume or runner.results.get(m.key()) != "killed"]
        runner.run()
    sys.exit(1 if report(mutations, runner.results) else 0)


if __name__ == "__main__":
    main()
