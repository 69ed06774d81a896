#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops one rank (SIGSTOP) at a random time: a waiting rank must warn in time, and the resumed job must complete.

stop_test.py TOOL                 a stop of each rank, also of the ranks with the hub and the standby
stop_test.py TOOL --long N        N stops at random times, on all transports
stop_test.py TOOL --gpus          a stop of each of two ranks on GPUs, whose kernels wait; 77 without any GPU
--seed S repeats a run; --jobs J jobs at once.

The warning must come within timeouts.warn + 2 s and name the stopped rank alone. The time counts from the stop. On GPUs
it counts from the start of the wait, because kernels that the stopped rank has enqueued still run. The stopped rank is
resumed after the warning. Then all ranks must end with 0 and no wrong element.
"""
import argparse
import concurrent.futures
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import threading
import time

from kill_test import SKIPPED, TRANSPORTS, count_gpus, free_port, knows_cuda, wait_until
from tally import Tally

LATE_S = 2  # after timeouts.warn
START_S = 60
END_S = 200
GPUS = "GPUs"
CALLS = {"shared memory": 150000, "network": 20000, "two hosts": 20000, "ring": 150000, GPUS: 400000}
SHARED_GPU_CALLS = 8000  # processes that share a GPU take turns of milliseconds
OPTIONS = TRANSPORTS | {GPUS: ["--device", "cuda"]}


class Rank:
    """One process of the job, whose lines are read as they come."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=environment)
        self.lines = []  # (time, text)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    def text(self):
        return "\n".join(line for _, line in self.lines)

    def has_begun(self):
        return "algbw" in self.text()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()


def waited_at_least(line):
    """The seconds between the start of the wait, which the warning names without its fraction, and the warning."""
    hours, minutes, seconds, since_hours, since_minutes, since_seconds = map(float, re.match(
        r"(\d+):(\d+):([\d.]+) .* since (\d+):(\d+):(\d+) UTC", line).groups())
    waited = (hours - since_hours) * 3600 + (minutes - since_minutes) * 60 + seconds - since_seconds
    return waited % 86400 - 1


class Stop:
    """One job of which one rank is stopped."""

    def __init__(self, tool, transport, victim, count, warn_s, pause_s):
        self.tool, self.transport, self.victim, self.count = tool, transport, victim, count
        self.warn_s, self.pause_s = warn_s, pause_s
        self.name = f"stop rank {victim} of {count}, {transport}, timeouts.warn {warn_s} s, after {pause_s:.2f} s"
        self.named = self.completed = self.hung = False
        self.took = None

    def start(self):
        environment = os.environ | {"TUTTI_ID": f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"}
        return [Rank([self.tool, "bench", "all_reduce", "--rank", str(rank), "--ranks", str(self.count), "--min", "64K",
                      "--max", "64K", "--repeat", "1", "--in-place", "no", "--iters", str(CALLS[self.transport]),
                      "--set", f"timeouts.warn={self.warn_s}s", *OPTIONS[self.transport]], environment)
                for rank in range(self.count)]

    def run(self):
        """The failure in words; None if there is none."""
        ranks = self.start()
        try:
            failure = self.stop(ranks)
        finally:
            for rank in ranks:
                rank.end()
        if failure is None:
            return None
        return "\n  ".join([f"{self.name}: {failure}", *(rank.text() for rank in ranks)])

    def stop(self, ranks):
        if not wait_until(ranks[0].has_begun, START_S):
            return "the ranks did not start"
        time.sleep(self.pause_s)  # a random time, in which nothing is awaited
        victim = ranks[self.victim].process
        if victim.poll() is not None:
            return "the run was over before the stop"
        stopped = time.monotonic()
        victim.send_signal(signal.SIGSTOP)
        others = [rank for number, rank in enumerate(ranks) if number != self.victim]
        try:
            failure = self.judge_warning(others, stopped)
        finally:
            victim.send_signal(signal.SIGCONT)
        return failure or self.judge_end(ranks)

    def judge_warning(self, others, stopped):
        def warnings():
            return [(when, line) for rank in others for when, line in list(rank.lines) if "no progress for" in line]
        wait_until(warnings, self.warn_s + 2 * LATE_S)
        if not warnings():
            return f"no warning {self.warn_s + 2 * LATE_S} s after the stop"
        when, line = min(warnings())
        self.took = when - stopped
        if self.transport == GPUS:
            self.took = min(self.took, waited_at_least(line))
        if not re.search(rf", for rank {self.victim}; rank {self.victim} does not answer", line):
            return f"the warning does not name rank {self.victim}: {line}"
        if self.took > self.warn_s + LATE_S:
            return f"the warning came after {self.took:.1f} s"
        self.named = True
        return None

    def judge_end(self, ranks):
        self.hung = not wait_until(lambda: all(rank.process.poll() is not None for rank in ranks), END_S)
        if self.hung:
            return f"the resumed job still runs after {END_S} s"
        for rank in ranks:
            rank.end()
        codes = [rank.process.returncode for rank in ranks]
        if any(codes) or not re.search(r", wrong 0$", ranks[0].text(), re.M):
            return f"the resumed job does not complete: {codes}"
        self.completed = True
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--long", type=int, default=0, metavar="N")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--gpus", action="store_true")
    request = parser.parse_args()
    if request.gpus and (count_gpus() == 0 or not knows_cuda(request.tool)):
        print("skipped: there is no GPU, or this build has no CUDA")
        return SKIPPED
    generator = random.Random(request.seed)
    print(f"seed {request.seed}", flush=True)
    cases = []
    if request.gpus:
        request.jobs = 1
        if count_gpus() == 1:
            CALLS[GPUS] = SHARED_GPU_CALLS
        cases = [Stop(request.tool, GPUS, victim, 2, 1, generator.uniform(0, 0.4)) for victim in range(2)]
    for number in range(0 if request.gpus else request.long or 3):
        count = generator.randint(2, 4) if request.long else 3
        victim = generator.randrange(count) if request.long else number
        transport = generator.choice(list(TRANSPORTS)) if request.long else "shared memory"
        cases.append(Stop(request.tool, transport, victim, count, generator.choice([1, 2, 3]) if request.long else 1,
                          generator.uniform(0, 0.4)))
    failures = []
    with concurrent.futures.ThreadPoolExecutor(request.jobs) as pool:
        for failure in pool.map(Stop.run, cases):
            if failure:
                failures.append(failure)
                print("FAILED", failure, flush=True)
    late = max((one.took - one.warn_s for one in cases if one.took is not None), default=0)
    print(f"{len(cases) - len(failures)} passed, {len(failures)} failed; "
          f"the latest warning came {late:.1f} s after timeouts.warn")
    Tally("rank stopped and resumed", len(cases), sum(one.named for one in cases), sum(one.completed for one in cases),
          0, sum(one.hung for one in cases), len(failures)).tell()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
