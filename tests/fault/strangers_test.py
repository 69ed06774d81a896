#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connects to every port of a running job without its secret. The job must end as if there were none; 77 without root.

The job runs in a network namespace of its own, with few file descriptors. There are three kinds of strangers: idle
strangers hold connections and send nothing, slow strangers send a byte per second, floods connect, send garbage and
close again.

Run as: strangers_test.py PATH_OF_TUTTI [--long [N]] [--only KIND]
With --long: N strangers (20,000), and the job's time with them compared to its time without them. In the second case
the same strangers connect to ports of another process, so that both jobs share the processors with them.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import resource
import select
import socket
import statistics
import subprocess
import sys
import time

from tally import Tally

SKIPPED = 77  # as CTest's SKIP_RETURN_CODE
ISOLATED = "TUTTI_STRANGERS_ISOLATED"
TIMEOUT_S = 120
DESCRIPTORS = 256  # descriptors of each rank
FLOOD_PER_S = 2000
KINDS = ("idle", "slow", "flood")


def listening_ports():
    """Of this network namespace."""
    ports = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            ports.add(int(fields[1].split(":")[1], 16))
    return ports


class Strangers:
    """Runs in a process of its own, with the lowest priority; ends with its standard input."""

    def __init__(self, kind, count, ports):
        self.kind, self.count, self.ports = kind, count, ports
        self.held = []
        self.made = 0

    def connect(self):
        one = socket.socket()
        one.setblocking(False)
        try:
            one.connect(("127.0.0.1", self.ports[self.made % len(self.ports)]))
        except BlockingIOError:
            pass
        except OSError:
            one.close()
            return None
        self.made += 1
        return one

    def say(self, one, data):
        try:
            one.send(data)
        except OSError:  # not connected yet, or dropped
            pass

    def run(self):
        os.nice(19)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        while not select.select([sys.stdin], [], [], 0)[0]:
            begin = time.monotonic()
            self.flood() if self.kind == "flood" else self.hold()
            print(self.made, flush=True)
            select.select([sys.stdin], [], [], max(0, begin + (0.1 if self.kind == "flood" else 1) - time.monotonic()))

    def hold(self):
        while self.made < self.count:
            one = self.connect()
            if one is None:
                return
            self.held.append(one)
        if self.kind == "slow":
            for one in self.held:
                self.say(one, b"T")

    def flood(self):
        for one in self.held:
            self.say(one, os.urandom(90))
            one.close()
        self.held = [one for one in (self.connect() for _ in range(FLOOD_PER_S // 10)) if one is not None]


def crowd_of(kind, count, ports):
    """The number of processes that the limit of descriptors demands; one process for a flood."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100
    parts = [count] if kind == "flood" else [min(most, count - begin) for begin in range(0, count, most)]
    return [subprocess.Popen([sys.executable, __file__, "--strangers", kind, str(part), *map(str, ports)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for part in parts]


def dismiss(crowd):
    """How many connections they made."""
    outputs = [process.communicate("\n", timeout=TIMEOUT_S)[0].split() for process in crowd]
    return sum(int(out[-1]) for out in outputs if out)


@dataclasses.dataclass
class Job:
    process: subprocess.Popen

    def wait(self):
        out, errors = self.process.communicate(timeout=TIMEOUT_S)
        times = [float(match[1]) for match in re.finditer(r"^ +65536 +\d+ +\w+ +\w+ +-?\d+ +([\d.]+)", out, re.M)]
        good = self.process.returncode == 0 and len(times) == 1 and re.search(r", wrong 0$", out, re.M)
        return (times[0] if good else None), out + errors


def start(tutti, iterations):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    environment = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
    command = [tutti, "bench", "all_reduce", "--ranks", "4", "--set", "transport=net", "--set", "algorithm=ring",
               "--min", "64K", "--max", "64K", "--iters", str(iterations), "--repeat", "5", "--in-place", "no"]
    return Job(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                preexec_fn=limit))


def job_ports(before):
    """The ports of the hub and of all four ranks."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(listening_ports() - before) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(listening_ports() - before)


def disturbed(tutti, kind, count, iterations, aside):
    """One job among strangers; its time per call, or a failure. `aside`: ports that they go to instead of the job's."""
    before = listening_ports()
    job = start(tutti, iterations)
    crowd = []
    try:
        crowd = crowd_of(kind, count, aside or job_ports(before))
        took, text = job.wait()
        return took, text, dismiss(crowd)
    finally:
        for process in (job.process, *crowd):
            if process.poll() is None:
                process.kill()
                process.wait()


def compare(tutti, kind, count):
    iterations, times, calm = 400, [], []
    decoys = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(5)]
    aside = [one.getsockname()[1] for one in decoys]
    for _ in range(5):
        took, text, made = disturbed(tutti, kind, count, iterations, None)
        if took is None:
            return f"{kind}: a job is lost among {made} strangers: {text.strip()}"
        if made < min(count, FLOOD_PER_S) / 4:
            return f"{kind}: only {made} strangers connected before the job was over"
        times.append(took)
        calm.append(disturbed(tutti, kind, count, iterations, aside)[0])
    with_them, without = statistics.median(times), statistics.median(calm)
    change = 100 * (with_them / without - 1)
    print(f"| {kind} | {made} | {without:.0f} | {with_them:.0f} | {change:+.1f} % |", flush=True)
    return None


def main():
    if sys.argv[1:2] == ["--strangers"]:
        Strangers(sys.argv[2], int(sys.argv[3]), [int(port) for port in sys.argv[4:]]).run()
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti")
    parser.add_argument("--long", type=int, nargs="?", const=20000, default=0, metavar="N")
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    if ISOLATED not in os.environ:
        probe = ["unshare", "--net", "ip", "link", "set", "lo", "up"]
        if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode != 0:
            print("skipped: needs root and a network namespace (unshare)")
            return SKIPPED
        os.environ[ISOLATED] = "1"
        os.execvp("unshare", ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable,
                              *sys.argv])
    tutti = str(pathlib.Path(options.tutti).resolve())
    failures = []
    if options.long:
        print("| strangers | connections | µs per call, strangers elsewhere | µs per call, strangers here | |\n"
              "|---|---:|---:|---:|---:|", flush=True)
    for kind in [options.only] if options.only else KINDS:
        if options.long:
            failures.append(compare(tutti, kind, options.long))
            continue
        took, text, made = disturbed(tutti, kind, 2000, 400, None)
        print(f"{kind}: {made} strangers, {took} µs per call")
        if took is None or made < 500:
            failures.append(f"{kind}: {text.strip()}")
    failures = [failure for failure in failures if failure]
    kinds = 1 if options.only else len(KINDS)
    Tally("strangers at every port", kinds, 0, kinds - len(failures), 0, 0, len(failures)).tell()
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
