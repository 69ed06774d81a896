#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch makes of ranks that do not take part: the other one gets an error in time, and nothing hangs.

    torch_faults.py --expect tutti

Starts two ranks for each case, ends them after its deadline, and prints a line per case.
"""

import argparse
import datetime
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

import loaded

STARTUP_S = 60  # of PyTorch and CUDA


def store_of(rank):
    """Beside the process group's own, which is a part of what fails."""
    return dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]) + 1, 2, rank == 0, datetime.timedelta(seconds=60))


def begin(rank, timeout_s):
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=timeout_s), device_id=device)
    data = torch.ones(1000, device=device)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    return data


def expect_error(action, limit_s):
    start = time.monotonic()
    try:
        action()
    except Exception as failure:  # pylint: disable=broad-except
        took = time.monotonic() - start
        print(f"error after {took:.1f} s: {(str(failure).splitlines() or [''])[0][:150]}", flush=True)
        return took < limit_s
    print(f"no error in {time.monotonic() - start:.1f} s", flush=True)
    return False


def absent(rank):
    """Rank 1 does not make the call: PyTorch's time-out (TORCH_NCCL_BLOCKING_WAIT) ends rank 0's wait."""
    data, store = begin(rank, 6), store_of(rank)
    if rank == 1:
        store.get("done")
        return True
    well = expect_error(lambda: dist.all_reduce(data, async_op=True).wait(), 20)
    dist.distributed_c10d._abort_process_group()
    torch.cuda.synchronize()  # the kernel that waited has ended
    store.set("done", "")
    return well


def own_deadline(rank):
    """Rank 1 does not make the call: Tutti's deadline (timeouts.operation) ends rank 0's kernel, long before
    PyTorch's."""
    data, store = begin(rank, 60), store_of(rank)
    if rank == 1:
        store.get("done")
        return True
    well = expect_error(lambda: dist.all_reduce(data, async_op=True).wait(), 20)
    store.set("done", "")
    return well


def killed(rank):
    """Rank 1 dies: rank 0 is told, long before any time-out."""
    data, store = begin(rank, 60), store_of(rank)
    if rank == 1:
        store.get("waiting")
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(data, async_op=True)
    store.set("waiting", "")
    return expect_error(work.wait, 20)


def aborted(rank):
    """A thread aborts what the main thread waits for on the GPU; then both ranks begin again."""
    data, store = begin(rank, 60), store_of(rank)
    if rank == 0:
        dist.all_reduce(data, async_op=True)
        start = time.monotonic()
        waiting = threading.Event()

        def abort():
            waiting.wait()
            dist.distributed_c10d._abort_process_group()
        thread = threading.Thread(target=abort)
        thread.start()
        waiting.set()
        torch.cuda.synchronize()
        thread.join()
        print(f"ended after {time.monotonic() - start:.1f} s", flush=True)
        store.set("aborted", "")
    else:
        store.get("aborted")
        dist.distributed_c10d._abort_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 2)
    data = begin(rank, 60)
    well = float(data[0]) == 2.0
    store.set(f"again/{rank}", "")
    store.get(f"again/{1 - rank}")
    dist.destroy_process_group()
    return well


# Variables of the case, its deadline after startup, and whether rank 1 may end as it likes.
CASES = {
    absent: ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, 30, False),
    own_deadline: ({"TORCH_NCCL_BLOCKING_WAIT": "1", "TUTTI_TIMEOUTS_OPERATION": "3s"}, 30, True),
    killed: ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, 30, True),
    aborted: ({}, 40, False),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_case(case, expected):
    variables, limit_s, second_may_die = CASES[case]
    common = {**os.environ, **variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2",
              "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    command = [sys.executable, __file__, "--expect", expected, "--case", case.__name__]
    ranks = [subprocess.Popen(command, env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) for rank in (0, 1)]
    deadline = time.monotonic() + STARTUP_S + limit_s
    outputs, hung = [], []
    for rank, process in enumerate(ranks):
        try:
            outputs.append(process.communicate(timeout=max(1.0, deadline - time.monotonic()))[0])
        except subprocess.TimeoutExpired:
            hung.append(rank)
            process.kill()
            outputs.append(process.communicate()[0])
    well = not hung and ranks[0].returncode == 0 and (second_may_die or ranks[1].returncode == 0)
    said = next((line for line in outputs[0].splitlines() if line.startswith(("error", "ended", "no error"))), "")
    print(f"{'passed' if well else 'WRONG':8} {case.__name__:14} {said}" + (f"; ranks {hung} hung" if hung else ""),
          flush=True)
    if not well:
        for rank, output in enumerate(outputs):
            print(f"--- rank {rank}, ended with {ranks[rank].returncode}:\n{output[-3000:]}", file=sys.stderr)
    return well


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expect", choices=["tutti", "nccl", "any"], default="any")
    parser.add_argument("--case", help="this process is a rank of it")
    options = parser.parse_args()
    loaded.check(options.expect)
    if options.case:
        well = next(case for case in CASES if case.__name__ == options.case)(int(os.environ["RANK"]))
        sys.stdout.flush()
        os._exit(0 if well else 1)  # a broken process group may be in no state to be destroyed
    # NCCL has no deadline of its own, and does not notice that a rank died.
    cases = [case for case in CASES if options.expect != "nccl" or case in (absent, aborted)]
    return 0 if all([run_case(case, options.expect) for case in cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
