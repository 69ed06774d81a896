#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch with ranks that do not take part: an error in time, no hang, and processes that can end.

    torch_faults.py --expect tutti

Starts two ranks for each case and prints a line per case. Ranks meet by files: no port can be in use, and the files of
a rank's wait do not end with its peer.
"""

import argparse
import dataclasses
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import typing

import torch
import torch.distributed as dist

import loaded

STARTUP_S = 90  # start of PyTorch and CUDA, and the first call
ABORTS = -signal.SIGABRT  # how PyTorch's watchdog ends a process


class Rank:
    """This process, and the folder that it shares with its peer and with its parent."""

    def __init__(self, rank, folder):
        self.rank = rank
        self.folder = pathlib.Path(folder)
        self.device = torch.device("cuda", rank % torch.cuda.device_count())
        self.groups = 0

    def begin(self, timeout_s):
        """A process group, and a first call on it."""
        torch.cuda.set_device(self.device)
        self.groups += 1
        store = dist.FileStore(str(self.folder / f"store {self.groups}"), 2)
        dist.init_process_group("nccl", store=store, rank=self.rank, world_size=2, device_id=self.device,
                                timeout=datetime.timedelta(seconds=timeout_s))
        data = torch.ones(1000, device=self.device)
        dist.all_reduce(data)
        torch.cuda.synchronize()
        return data

    def tell(self, what):
        (self.folder / what).touch()

    def hear(self, what):
        """Waits until the file exists; the parent ends this process if it never does."""
        while not (self.folder / what).exists():
            time.sleep(0.05)


def expect_error(rank, action):
    start = time.monotonic()
    rank.tell("waiting")
    try:
        action()
    except Exception as failure:  # pylint: disable=broad-except
        said = (str(failure).splitlines() or [""])[0]
        print(f"error after {time.monotonic() - start:.1f} s: {said[:150]}", flush=True)
    else:
        print(f"no error in {time.monotonic() - start:.1f} s", flush=True)


def absent(rank):
    """Rank 1 does not make the call: PyTorch's time-out ends rank 0's wait (TORCH_NCCL_BLOCKING_WAIT). PyTorch aborts
    the communicator, and then nothing is left on the GPU; it may also end the process, just after the error."""
    data = rank.begin(6)
    if rank.rank == 1:
        rank.hear("end of rank 0")
        return
    expect_error(rank, lambda: dist.all_reduce(data, async_op=True).wait())
    torch.cuda.synchronize()
    print("the GPU is idle", flush=True)


def watchdog(rank):
    """As absent, with PyTorch's defaults: nothing but its watchdog notices, which ends the process while a kernel waits
    on the GPU."""
    data = rank.begin(6)
    if rank.rank == 1:
        rank.hear("end of rank 0")
        return
    expect_error(rank, lambda: (dist.all_reduce(data), torch.cuda.synchronize()))


def own_deadline(rank):
    """Rank 1 does not make the call: Tutti's deadline (timeouts.operation) ends rank 0's kernel, long before
    PyTorch's."""
    data = rank.begin(60)
    if rank.rank == 1:
        rank.hear("end of rank 0")
        return
    expect_error(rank, lambda: dist.all_reduce(data, async_op=True).wait())


def killed(rank):
    """Rank 1 dies: rank 0 is told, long before any time-out."""
    data = rank.begin(60)
    if rank.rank == 1:
        rank.hear("waiting")
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(data, async_op=True)
    expect_error(rank, work.wait)


def aborted(rank):
    """A thread aborts the wait of the main thread on the GPU; then both ranks begin again."""
    data = rank.begin(60)
    if rank.rank == 0:
        def abort():
            time.sleep(1)  # by then the main thread stands in synchronize()
            dist.distributed_c10d._abort_process_group()
        dist.all_reduce(data, async_op=True)
        start = time.monotonic()
        thread = threading.Thread(target=abort)
        thread.start()
        rank.tell("waiting")
        torch.cuda.synchronize()
        thread.join()
        print(f"ended after {time.monotonic() - start:.1f} s", flush=True)
        rank.tell("aborted")
    else:
        rank.hear("aborted")
        dist.distributed_c10d._abort_process_group()
    data = rank.begin(60)
    print("began again" if float(data[0]) == 2.0 else f"began again, but 1 + 1 is {float(data[0])}", flush=True)
    dist.destroy_process_group()


@dataclasses.dataclass
class Case:
    play: typing.Callable
    variables: dict
    says: str  # somewhere in rank 0's output, a regular expression
    limit_s: int  # from where rank 0 begins to wait to its end; half of a time-out that must not be the reason
    ends: tuple  # each rank's possible ways to end


BLOCKING = {"TORCH_NCCL_BLOCKING_WAIT": "1"}
DUMPS_AT_ONCE = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "500"}  # otherwise the watchdog waits a minute for its dump
ANY_END = {0, ABORTS}
CASES = [
    Case(absent, BLOCKING, "^error after", 30, (ANY_END, ANY_END)),
    Case(watchdog, DUMPS_AT_ONCE, "Watchdog caught collective operation timeout", 60, ({ABORTS}, ANY_END)),
    Case(own_deadline, {**BLOCKING, "TUTTI_TIMEOUTS_OPERATION": "3s"}, "^error after", 30, (ANY_END, ANY_END)),
    Case(killed, BLOCKING, "^error after", 30, (ANY_END, {-signal.SIGKILL})),
    Case(aborted, {}, "^began again$", 40, ({0}, {0})),
]


def start(case, rank, folder, expected):
    command = [sys.executable, __file__, "--expect", expected, "--case", case.play.__name__, "--rank", str(rank),
               "--folder", str(folder)]
    variables = {**os.environ, "TORCH_NCCL_DUMP_ON_TIMEOUT": "0", **case.variables}
    with open(folder / f"output {rank}", "w", encoding="utf-8") as out:
        return subprocess.Popen(command, env=variables, stdout=out, stderr=subprocess.STDOUT)


def wait_for(case, ranks, folder):
    """Until both have ended, or are late. How long rank 0 took from where it waits to its end; None: it did not wait,
    or did not end."""
    began = took = None
    limit = time.monotonic() + STARTUP_S
    while any(process.poll() is None for process in ranks) and time.monotonic() < limit:
        time.sleep(0.05)
        if began is None and (folder / "waiting").exists():
            began = time.monotonic()
            limit = began + case.limit_s
        if ranks[0].poll() is not None and not (folder / "end of rank 0").exists():
            took = time.monotonic() - began if began else None
            (folder / "end of rank 0").touch()
            limit = time.monotonic() + 20
    return took


def run_case(case, expected):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ranks = [start(case, rank, folder, expected) for rank in (0, 1)]
        took = wait_for(case, ranks, folder)
        faults = [f"rank {rank} hung" for rank, process in enumerate(ranks) if process.poll() is None]
        for process in ranks:
            process.kill()
        for rank, process in enumerate(ranks):
            try:
                if process.wait(20) not in case.ends[rank] and not faults:
                    faults.append(f"rank {rank} ended with {process.returncode}")
            except subprocess.TimeoutExpired:
                faults.append(f"rank {rank} cannot be killed")
        outputs = [(folder / f"output {rank}").read_text(encoding="utf-8", errors="replace") for rank in (0, 1)]
    if not re.search(case.says, outputs[0], re.MULTILINE):
        faults.append(f"rank 0 does not say '{case.says}'")
    said = next((line for line in outputs[0].splitlines() if line.startswith(("error", "ended", "no error"))), "")
    print(f"{'WRONG' if faults else 'passed':8} {case.play.__name__:14} "
          + "; ".join([*faults, f"rank 0 ended {took:.1f} s after it began to wait" if took else "", said]).strip("; "),
          flush=True)
    if faults:
        for rank, output in enumerate(outputs):
            print(f"--- rank {rank}, ended with {ranks[rank].returncode}:\n{output[-4000:]}", flush=True)
    return not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expect", choices=["tutti", "nccl", "any"], default="any")
    parser.add_argument("--case", help="only this; with --rank and --folder, this process is a rank of it")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder")
    options = parser.parse_args()
    loaded.check(options.expect)
    cases = [case for case in CASES if options.case in (None, case.play.__name__)]
    if options.rank is not None:
        code = 0
        try:
            cases[0].play(Rank(options.rank, options.folder))
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        os._exit(code)  # a broken process group may be in no state to be destroyed
    if options.expect == "nccl":  # has no deadline of its own, and does not notice that a rank died
        cases = [case for case in cases if case.play not in (own_deadline, killed)]
    return 0 if all([run_case(case, options.expect) for case in cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
