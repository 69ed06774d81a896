#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills one rank at a random time: every other rank must fail, name it within 10 s, and leave nothing behind.

kill_test.py TOOL                 some kills of each kind, rank 0 with the hub included, in seconds
kill_test.py TOOL --long N        N kills at random times, start-up included, several jobs at once; prints a table
kill_test.py TOOL --gpus          on GPUs, where the kernels of the other ranks must end as well; 77 without any
--seed S repeats a run; --jobs J jobs at once.

Each rank is a `tutti bench --rank R` process of its own, so that no launcher cleans up after them.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import secrets
import select
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from run_tool import SKIPPED, count_gpus, free_port  # noqa: E402
from tally import Tally  # noqa: E402

DEADLINE_S = 10
START_S = 60
TRANSPORTS = {"shared memory": [], "network": ["--set", "transport=net"],
              "two hosts": ["--hosts", "a,b"], "ring": ["--set", "algorithm=ring"]}


def start(tool, collective, rank, ranks, meeting, extra, environment):
    command = [tool, "bench", collective, "--rank", str(rank), "--ranks", str(ranks),
               "--min", "1M", "--max", "1M", "--iters", "1000000", "--no-check"] + extra
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ | {"TUTTI_ID": meeting} | environment)


def says_what_it_measures(process, seconds):
    """Rank 0 prints the table's head when every rank has joined and, on GPUs, made a call."""
    readable, _, _ = select.select([process.stdout], [], [], seconds)
    return bool(readable) and process.stdout.readline().startswith("# Tutti")


def shared_memory_files():
    return {name for name in os.listdir("/dev/shm") if "tutti" in name}


def joined(process):
    """Whether a rank has met its peers: from then on all peers have to name it."""
    try:
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps:
            return "/memfd:tutti" in maps.read()
    except OSError:
        return False


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)  # between looks at other processes, which tell nothing
    return True


def gpus_of(process):
    """The open files of NVIDIA's driver in a process: a rank without GPUs would not test them."""
    try:
        return [fd for fd in os.listdir(f"/proc/{process.pid}/fd")
                if re.match(r"/dev/nvidia\d", os.readlink(f"/proc/{process.pid}/fd/{fd}"))]
    except OSError:
        return []


class Kill:
    """One job of which one rank is killed."""

    def __init__(self, tool, victim, count, extra, environment=None, collective="all_reduce", pause=None):
        self.tool, self.victim, self.count, self.extra = tool, victim, count, extra
        self.environment, self.collective = environment or {}, collective
        self.pause = pause  # seconds after rank 1 has met its peers; None: in the middle of a call
        self.took = None
        self.hung = False
        about = [*extra, *(f"{key}={value}" for key, value in self.environment.items())]
        when = "in a call" if pause is None else f"{pause * 1000:.0f} ms after the ranks have met"
        self.name = f"kill rank {victim} of {count} {when}: {' '.join(about) or '(shared memory)'}"

    def run(self):
        """The failure in words; None if there is none."""
        meeting = f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"
        ranks = [start(self.tool, self.collective, rank, self.count, meeting, self.extra, self.environment)
                 for rank in range(self.count)]
        try:
            failure = self.wait_for_start(ranks)
            if failure is None:
                killed_at = time.monotonic()
                ranks[self.victim].send_signal(signal.SIGKILL)
                failure = self.judge(ranks, killed_at)
            else:
                for process in ranks:
                    process.kill()
                failure += f": {[process.communicate()[1][-300:] for process in ranks]}"
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        return failure and f"{self.name}: {failure}"

    def wait_for_start(self, ranks):
        if self.pause is not None:
            if not wait_until(lambda: all(joined(rank) for rank in ranks), START_S):
                return "the ranks did not meet"
            time.sleep(self.pause)
            return None
        if not says_what_it_measures(ranks[0], START_S):
            return "the ranks did not start"
        time.sleep(0.3)  # not a synchronisation: only makes it likely that the kill hits the middle of a call
        if "cuda" in self.extra and not gpus_of(ranks[self.victim]):
            return f"rank {self.victim} uses no GPU"
        return None

    def judge(self, ranks, killed_at):
        for rank, process in enumerate(ranks):
            try:
                _, errors = process.communicate(timeout=max(0.1, killed_at + DEADLINE_S - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.hung = True
                return f"rank {rank} still runs {DEADLINE_S} s after the kill"
            if rank == self.victim:
                continue
            self.took = time.monotonic() - killed_at
            last = errors.strip().splitlines()[-1:] or [""]
            if process.returncode == 0 or not re.search(rf"rank {self.victim} \(.* lost: its process ended", last[0]):
                return f"rank {rank} ended with {process.returncode} after {self.took:.2f} s: {errors.strip()!r}"
        return None


def host_cases(tool, generator):
    """Rank 0 runs the hub, rank 1 its standby."""
    cases = [Kill(tool, victim, 4, extra) for extra in TRANSPORTS.values() for victim in (0, 1, 3)]
    return cases + [Kill(tool, victim, 3, [], pause=generator.uniform(0, 0.1)) for victim in (0, 1, 2)]


def random_case(tool, generator):
    count = generator.randint(2, 5)
    extra = generator.choice(list(TRANSPORTS.values()))
    pause = generator.choice([None, generator.uniform(0, 0.05), generator.uniform(0, 0.5)])
    return Kill(tool, generator.randrange(count), count, extra, pause=pause)


def gpu_cases(tool, gpus):
    """On GPUs of their own if there are enough, else on a shared GPU: there, kernels run in turns."""
    cuda = ["--device", "cuda"]
    cases = [Kill(tool, victim, 2, cuda + ["--set", f"protocol={protocol}"])
             for protocol, victim in (("simple", 1), ("ll", 0), ("ll128", 1))]
    cases.append(Kill(tool, 1, max(2, min(gpus, 8)), cuda + ["--set", "algorithm=ring"]))
    if gpus > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        cases.append(Kill(tool, 1, 2, cuda, {"CUDA_VISIBLE_DEVICES": visible}))
        cases.append(Kill(tool, 1, 2, cuda + ["--register", "--set", "protocol=copy"], collective="all_gather"))
    return cases


def knows_cuda(tool):
    command = [tool, "bench", "all_reduce", "--ranks", "1", "--device", "cuda", "--max", "8"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    return "not in this build" not in tried.stderr


def print_table(cases, failed):
    rows = collections.defaultdict(list)
    for case in cases:
        kind = next(name for name, extra in TRANSPORTS.items() if extra == case.extra)
        where = {0: "rank 0 (hub)", 1: "rank 1 (standby)"}.get(case.victim, "another rank")
        rows[where, kind, "in a call" if case.pause is None else "at start"].append(case)
    print(f"{'killed':18}{'transport':15}{'when':11}{'kills':>6}{'failed':>8}{'median s':>10}{'longest s':>11}")
    for key, kills in sorted(rows.items()):
        times = [kill.took for kill in kills if kill.took is not None] or [0.0]
        wrong = sum(kill in failed for kill in kills)
        print(f"{key[0]:18}{key[1]:15}{key[2]:11}{len(kills):6}{wrong:8}{statistics.median(times):10.3f}"
              f"{max(times):11.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--gpus", action="store_true")
    parser.add_argument("--long", type=int, default=0, metavar="N")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    request = parser.parse_args()
    generator = random.Random(request.seed)
    print(f"seed {request.seed}", flush=True)
    jobs = request.jobs
    if request.gpus:
        gpus, jobs = count_gpus(), 1
        if gpus == 0 or not knows_cuda(request.tool):
            print("skipped: there is no GPU, or this build has no CUDA")
            return SKIPPED
        cases = gpu_cases(request.tool, gpus)
    elif request.long > 0:
        cases = [random_case(request.tool, generator) for _ in range(request.long)]
    else:
        cases = host_cases(request.tool, generator)
    before = shared_memory_files()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        failed = set()
        for case, failure in zip(cases, pool.map(Kill.run, cases)):
            if failure:
                failed.add(case)
                print("FAILED", failure, flush=True)
    left = shared_memory_files() - before
    if left:
        print("FAILED left shared memory behind:", left)
    if not request.gpus:
        print_table(cases, failed)
    print(f"{len(cases) - len(failed)} passed, {len(failed)} failed")
    good = len(cases) - len(failed)
    Tally("rank killed", len(cases), good, 0, good, sum(case.hung for case in cases), len(failed) + bool(left)).tell()
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
