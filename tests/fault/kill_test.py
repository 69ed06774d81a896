#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills one rank in the middle of a collective: every other rank must fail, name it, and leave nothing behind.

Each rank is a `tutti bench --rank R --id ...` process of its own, so that no launcher cleans up after them.
"""
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time

TUTTI = sys.argv[1]
DEADLINE_S = 10  # the default of timeouts.peer_loss
RANKS = 4


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(rank, meeting, extra):
    command = [TUTTI, "bench", "all_reduce", "--rank", str(rank), "--ranks", str(RANKS), "--id", meeting,
               "--min", "1M", "--max", "1M", "--iters", "1000000", "--no-check"] + extra
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def running(process):
    """Whether the rank is past init: it maps the shared memory of the others, or has data connections."""
    try:
        with open(f"/proc/{process.pid}/maps") as maps:
            return maps.read().count("memfd:tutti") >= 1
    except OSError:
        return False


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def shared_memory_files():
    return {name for name in os.listdir("/dev/shm") if "tutti" in name}


def kill_one(victim, extra):
    name = f"kill rank {victim} {' '.join(extra) or '(shared memory)'}"
    meeting = f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"
    before = shared_memory_files()
    ranks = [start(rank, meeting, extra) for rank in range(RANKS)]
    try:
        if not wait_until(lambda: all(running(rank) for rank in ranks), 30):
            return f"{name}: the ranks did not start: {[rank.poll() for rank in ranks]}"
        time.sleep(0.3)  # not a synchronisation: only makes it likely that the kill hits the middle of a call
        killed_at = time.monotonic()
        ranks[victim].send_signal(signal.SIGKILL)
        for rank, process in enumerate(ranks):
            try:
                _, errors = process.communicate(timeout=DEADLINE_S + 2)
            except subprocess.TimeoutExpired:
                return f"{name}: rank {rank} still runs {DEADLINE_S + 2} s after the kill"
            took = time.monotonic() - killed_at
            if rank == victim:
                continue
            if process.returncode == 0 or not re.search(rf"rank {victim}\b.*lost", errors):
                return f"{name}: rank {rank} ended with {process.returncode} after {took:.2f} s: {errors.strip()!r}"
        print(f"{name}: all others knew after {took:.2f} s")
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait()
    left = shared_memory_files() - before
    return f"{name}: left shared memory behind: {left}" if left else None


def main():
    failures = []
    for extra in ([], ["--set", "transport=net"], ["--set", "algorithm=ring"]):
        # Rank 0 runs the hub: its loss is the loss of the hub, which the others must survive to tell.
        for victim in (1, 3):
            failure = kill_one(victim, extra)
            if failure:
                failures.append(failure)
                print("FAILED", failure)
    print(f"{6 - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
