#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills one rank in the middle of a collective: every other rank must fail, name it, and leave nothing behind.

kill_test.py TOOL [--gpus]: on the host, or on GPUs, where the kernels of the other ranks must end as well; 77 without
any. Each rank is a `tutti bench --rank R` process of its own, so that no launcher cleans up after them.
"""
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import time

DEADLINE_S = 10  # the default of timeouts.peer_loss
START_S = 60
SKIPPED = 77  # as CTest's SKIP_RETURN_CODE


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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


def gpus_of(process):
    """What NVIDIA's driver has open for a process: a rank without GPUs would not test them."""
    try:
        return [fd for fd in os.listdir(f"/proc/{process.pid}/fd")
                if re.match(r"/dev/nvidia\d", os.readlink(f"/proc/{process.pid}/fd/{fd}"))]
    except OSError:
        return []


def judge(name, ranks, victim, killed_at):
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
    print(f"{name}: all others knew after {time.monotonic() - killed_at:.2f} s", flush=True)
    return None


def kill_one(tool, victim, count, extra, environment, collective="all_reduce"):
    about = [*extra, *(f"{key}={value}" for key, value in environment.items())]
    name = f"kill rank {victim} of {count} {' '.join(about) or '(shared memory)'}"
    meeting = f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"
    before = shared_memory_files()
    ranks = [start(tool, collective, rank, count, meeting, extra, environment) for rank in range(count)]
    try:
        if not says_what_it_measures(ranks[0], START_S):
            ranks[0].kill()
            return f"{name}: the ranks did not start: {[rank.poll() for rank in ranks]} {ranks[0].communicate()[1]!r}"
        time.sleep(0.5)  # not a synchronisation: only makes it likely that the kill hits the middle of a call
        if "cuda" in extra and not gpus_of(ranks[victim]):
            return f"{name}: rank {victim} uses no GPU"
        killed_at = time.monotonic()
        ranks[victim].send_signal(signal.SIGKILL)
        failure = judge(name, ranks, victim, killed_at)
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait()
    left = shared_memory_files() - before
    return failure or (f"{name}: left shared memory behind: {left}" if left else None)


def host_cases():
    # Rank 0 runs the hub: its loss is the loss of the hub, which the others must survive to tell.
    return [(victim, 4, extra, {}) for extra in ([], ["--set", "transport=net"], ["--set", "algorithm=ring"])
            for victim in (1, 3)]


def gpu_cases(gpus):
    """On GPUs of their own as far as there are, then on one that they share: there, kernels run in turns."""
    cuda = ["--device", "cuda"]
    cases = [(victim, 2, cuda + ["--set", f"protocol={protocol}"], {})
             for protocol, victim in (("simple", 1), ("ll", 1), ("ll128", 1))]
    cases.append((1, max(2, min(gpus, 8)), cuda + ["--set", "algorithm=ring"], {}))
    if gpus > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        cases.append((1, 2, cuda, {"CUDA_VISIBLE_DEVICES": visible}))
        cases.append((1, 2, cuda + ["--register", "--set", "protocol=copy"], {}, "all_gather"))
    return cases


def count_gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    return len(re.findall(r"^GPU \d+:", listed.stdout, re.MULTILINE))


def knows_cuda(tool):
    command = [tool, "bench", "all_reduce", "--ranks", "1", "--device", "cuda", "--max", "8"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    return "not in this build" not in tried.stderr


def main():
    tool = sys.argv[1]
    cases = host_cases()
    if "--gpus" in sys.argv[2:]:
        gpus = count_gpus()
        if gpus == 0 or not knows_cuda(tool):
            print("skipped: there is no GPU, or this build has no CUDA")
            return SKIPPED
        cases = gpu_cases(gpus)
    failures = [failure for failure in (kill_one(tool, *case) for case in cases) if failure]
    for failure in failures:
        print("FAILED", failure)
    print(f"{len(cases) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
