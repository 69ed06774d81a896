#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strangers at the hub's port before and during a job: idle, slow and flooding strangers. The job must not notice.

crowded_join_test.py TOOL [--strangers N] [--calls C]:
half of them come while the hub waits for its last rank, half during the job.
Prints how long the same job takes without and with them.
"""
import argparse
import os
import pathlib
import resource
import secrets
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from run_tool import free_port  # noqa: E402
from tally import Tally  # noqa: E402

START_S = 60


class Strangers:
    """Connections to one port: a third stays idle, a third sends one byte, a third sends garbage and goes."""

    def __init__(self, port, most_open):
        self.port, self.most_open = port, most_open
        self.open, self.came, self.refused = [], 0, 0

    def come(self):
        kind = (self.came + self.refused) % 3
        try:
            visitor = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        except OSError:
            self.refused += 1
            return
        self.came += 1
        try:
            visitor.sendall((b"", b"T", secrets.token_bytes(300))[kind])
        except OSError:
            pass
        if kind == 2:
            visitor.close()
            return
        self.open.append(visitor)
        if len(self.open) > self.most_open:
            self.open.pop(0).close()

    def come_in_numbers(self, count, stop=None):
        for _ in range(count):
            if stop is not None and stop.is_set():
                return
            self.come()


def rank_command(tool, rank, ranks, calls):
    return [tool, "bench", "all_reduce", "--rank", str(rank), "--ranks", str(ranks), "--min", "64K",
            "--max", "64K", "--iters", str(calls), "--set", "timeouts.bootstrap=60s"]


def run_job(tool, strangers_count, calls):
    """Seconds from the start of the last rank to the end of all, and the strangers."""
    port = free_port()
    meeting = f"127.0.0.1:{port}:{secrets.token_hex(16)}"
    environment = os.environ | {"TUTTI_ID": meeting}
    strangers = Strangers(port, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    start = [subprocess.Popen(rank_command(tool, rank, 3, calls), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=environment) for rank in range(2)]
    over = threading.Event()
    try:
        wait_for_listener(port)
        strangers.come_in_numbers(strangers_count // 2)
        began = time.monotonic()
        start.append(subprocess.Popen(rank_command(tool, 2, 3, calls), stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, env=environment))
        crowd = threading.Thread(target=strangers.come_in_numbers, args=(strangers_count - strangers_count // 2, over))
        crowd.start()
        ends = [process.communicate(timeout=300) for process in start]
        took = time.monotonic() - began
        over.set()
        crowd.join()
    finally:
        over.set()
        for process in start:
            if process.poll() is None:
                process.kill()
                process.wait()
    wrong = [errors for process, (_, errors) in zip(start, ends) if process.returncode != 0]
    return took, strangers, wrong


def wait_for_listener(port):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)  # pause between checks of a process that does not report its state
    raise TimeoutError("rank 0 does not listen")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--strangers", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=50, help="that the job makes and measures")
    request = parser.parse_args()
    alone, _, wrong = run_job(request.tool, 0, request.calls)
    crowded, strangers, wrong_in_crowd = run_job(request.tool, request.strangers, request.calls)
    print(f"{strangers.came} strangers came, {strangers.refused} were refused; "
          f"the job took {alone:.2f} s without them and {crowded:.2f} s with them")
    for errors in wrong + wrong_in_crowd:
        print("FAILED", errors)
    Tally("strangers while ranks join", 1, 0, int(not (wrong or wrong_in_crowd)), 0, 0,
          int(bool(wrong or wrong_in_crowd))).tell()
    return 1 if wrong or wrong_in_crowd else 0


if __name__ == "__main__":
    sys.exit(main())
