#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connects to every port of a running job without its secret. The job must end as if there were none; 77 without root.

The job runs in a network namespace of its own, with few file descriptors. There are three kinds of strangers: idle
strangers hold connections and send nothing, slow strangers send a byte per second, floods connect, send garbage and
close again.

Run as: strangers_test.py PATH_OF_TUTTI [--long [N]] [--only KIND] [--rounds R]
With --long: N strangers (20,000), and their cost for the job. Each round runs three jobs, in turns: alone, among
strangers that connect to ports of a process that is no part of the job, and among strangers that connect to the job.
The ranks have one processor for themselves and the strangers all others, if there are two. The figures are medians of
R rounds (9): time of a call, processor time of the whole job, and the ratios of each round.
"""

import argparse
import collections
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
ITERATIONS = 6000  # of a job that is measured; all in one batch, so that nothing is left out
PROCESSORS = sorted(os.sched_getaffinity(0))
OF_JOB, OF_STRANGERS = (PROCESSORS[-1:], PROCESSORS[:-1]) if len(PROCESSORS) > 1 else (PROCESSORS, PROCESSORS)
KINDS = ("idle", "slow", "flood")


def listening_ports():
    """The ports of this network namespace that listen for TCP."""
    ports = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            ports.add(int(fields[1].split(":")[1], 16))
    return ports


class Strangers:
    """Runs in a process of its own, with the lowest priority. Line 1 of its standard input names the ports, line 2 ends
    the process."""

    def __init__(self, kind, count):
        self.kind, self.count, self.ports = kind, count, []
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
        os.sched_setaffinity(0, OF_STRANGERS)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        print("ready", flush=True)
        self.ports = [int(port) for port in sys.stdin.readline().split()]
        while self.ports and not select.select([sys.stdin], [], [], 0)[0]:
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


def be_elsewhere():
    """A process that is no part of the job: takes connections at as many ports, and drops the oldest."""
    os.nice(19)
    os.sched_setaffinity(0, OF_STRANGERS)
    servers = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(5)]
    print(*(one.getsockname()[1] for one in servers), flush=True)
    held = collections.deque(maxlen=5 * 128)
    while True:
        ready = select.select([sys.stdin, *servers], [], [])[0]
        if sys.stdin in ready:
            return
        for server in ready:
            held.append(server.accept()[0])  # what falls out is closed


def crowd_of(kind, count):
    """As many processes as the limit of descriptors demands, all ready; one process for a flood."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100
    parts = [count] if kind == "flood" else [min(most, count - begin) for begin in range(0, count, most)]
    crowd = [subprocess.Popen([sys.executable, __file__, "--strangers", kind, str(part)], bufsize=0,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) for part in parts]
    for process in crowd:
        process.stdout.readline()
    return crowd


def send(crowd, ports):
    """Lets the strangers connect to these ports."""
    for process in crowd:
        process.stdin.write(f"{' '.join(map(str, ports))}\n".encode())


def dismiss(crowd):
    """How many connections they made."""
    outputs = [process.communicate(b"\n", timeout=TIMEOUT_S)[0].split() for process in crowd]
    return sum(int(out[-1]) for out in outputs if out)


@dataclasses.dataclass
class Job:
    process: subprocess.Popen
    cpu_s: float = 0

    def wait(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        out, errors = self.process.communicate(timeout=TIMEOUT_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        times = [float(match[1]) for match in re.finditer(r"^ +65536 +\d+ +\w+ +\w+ +-?\d+ +([\d.]+)", out, re.M)]
        good = self.process.returncode == 0 and len(times) == 1 and re.search(r", wrong 0$", out, re.M)
        return (times[0] if good else None), out + errors


def start(tutti, iterations, repeats):
    def limit():
        os.sched_setaffinity(0, OF_JOB if repeats == 1 else PROCESSORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    environment = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
    command = [tutti, "bench", "all_reduce", "--ranks", "4", "--set", "transport=net", "--set", "algorithm=ring",
               "--min", "64K", "--max", "64K", "--iters", str(iterations), "--repeat", str(repeats), "--in-place", "no"]
    return Job(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                preexec_fn=limit))


def job_ports(before):
    """The ports of the hub and of all four ranks."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(listening_ports() - before) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(listening_ports() - before)


def disturbed(tutti, kind, count):
    """One job among strangers; its time per call, its output, and the number of strangers."""
    before = listening_ports()
    crowd = crowd_of(kind, count)
    job = start(tutti, 400, 5)
    try:
        send(crowd, job_ports(before))
        took, text = job.wait()
        return took, text, dismiss(crowd)
    finally:
        end([job.process, *crowd])


def end(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


@dataclasses.dataclass
class Sample:
    us: float  # of a call; None: the job is lost
    cpu_s: float  # of the job
    text: str
    made: int = 0  # strangers


def measure(tutti, kind, count, where):
    """One job: "alone", or with strangers "elsewhere" or "here"."""
    before = listening_ports()
    others = []
    try:
        if where == "elsewhere":
            others = [subprocess.Popen([sys.executable, __file__, "--elsewhere"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)]
            elsewhere = others[0].stdout.readline().split()
            before = listening_ports()
        crowd = [] if where == "alone" else crowd_of(kind, count)
        others += crowd
        job = start(tutti, ITERATIONS, 1)
        others.append(job.process)
        ports = job_ports(before)
        send(crowd, elsewhere if where == "elsewhere" else ports)
        took, text = job.wait()
        return Sample(took, job.cpu_s, text, dismiss(crowd))
    finally:
        end(others)


def compare(tutti, kind, count, rounds):
    """Prints a row of the table. The problem in words; None if there is none."""
    places = ["alone", "elsewhere", "here"]
    samples = {place: [] for place in places}
    for turn in range(rounds):
        for place in places[turn % 3:] + places[:turn % 3]:
            sample = measure(tutti, kind, count, place)
            if sample.us is None:
                return f"{kind}: a job is lost, strangers {place}: {sample.text.strip()}"
            samples[place].append(sample)
    made = min(sample.made for sample in samples["here"])
    if made < min(count, FLOOD_PER_S) / 4:
        return f"{kind}: only {made} strangers connected before the job was over"

    def median(place, value):
        return statistics.median(value(sample) for sample in samples[place])

    def change(than, value):
        ratios = [value(here) / value(other) for here, other in zip(samples["here"], samples[than])]
        return 100 * (statistics.median(ratios) - 1)

    times = [f"{median(place, lambda sample: sample.us):.0f}" for place in places]
    cpus = [f"{median(place, lambda sample: sample.cpu_s):.2f}" for place in places]
    changes = [change(than, value) for value in (lambda sample: sample.us, lambda sample: sample.cpu_s)
               for than in ("alone", "elsewhere")]
    print(f"| {kind} | {made} | {' | '.join(times)} | {changes[0]:+.1f} % | {changes[1]:+.1f} % | {' | '.join(cpus)} "
          f"| {changes[2]:+.1f} % | {changes[3]:+.1f} % |", flush=True)
    return None


def main():
    if sys.argv[1:2] == ["--strangers"]:
        Strangers(sys.argv[2], int(sys.argv[3])).run()
        return 0
    if sys.argv[1:2] == ["--elsewhere"]:
        be_elsewhere()
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti")
    parser.add_argument("--long", type=int, nargs="?", const=20000, default=0, metavar="N")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--rounds", type=int, default=9)
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
        columns = ["alone", "elsewhere", "here", "here / alone", "here / elsewhere"]
        titles = ["strangers", "connections", *(f"{unit} {name}" for unit in ("µs", "CPU s") for name in columns)]
        print(f"| {' | '.join(titles)} |\n|---{'|---:' * 11}|", flush=True)
    for kind in [options.only] if options.only else KINDS:
        if options.long:
            failures.append(compare(tutti, kind, options.long, options.rounds))
            continue
        for _ in range(3):  # on a busy machine, a job may end before the strangers, which have the lowest priority
            took, text, made = disturbed(tutti, kind, 2000)
            print(f"{kind}: {made} strangers, {took} µs per call")
            if took is None or made >= 500:
                break
        if took is None or made < 500:
            failures.append(f"{kind}: only {made} strangers came, or the job failed: {text.strip()}")
    failures = [failure for failure in failures if failure]
    kinds = 1 if options.only else len(KINDS)
    Tally("strangers at every port", kinds, 0, kinds - len(failures), 0, 0, len(failures)).tell()
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
