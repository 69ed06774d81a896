# SPDX-License-Identifier: Apache-2.0
"""The common part of the checks of torch.distributed: ranks, random input that every rank can compute, a table of
outcomes."""

import datetime
import faulthandler
import os
import sys
import time
import traceback

import torch
import torch.distributed as dist

LIMIT_S = 90  # limit of one check; then the whole process is ended with its stack
FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
TYPES = FLOATS + INTEGERS + [torch.bool]
# Tolerance of a sum over a few ranks, rounded to the type at every step.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 1e-2, torch.bfloat16: 8e-2}


class Ranks:
    """This process among the processes that torchrun started."""

    def __init__(self, backend, seed, eager):
        self.backend = backend
        self.seed = seed
        self.rank = int(os.environ["RANK"])
        self.size = int(os.environ["WORLD_SIZE"])
        self.eager = eager
        self.device = torch.device("cpu")
        if backend == "nccl":
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        self.begun = 0
        self.store = next(dist.rendezvous("env://"))[0]  # torchrun's: no other port, and it outlives every rank
        self.store.set_timeout(datetime.timedelta(seconds=60))
        self.begin()

    def begin(self):
        """The process group; later groups have keys of their own, since the keys of earlier groups are still in the
        store."""
        self.begun += 1
        bound = {"device_id": self.device} if self.eager and self.device.type == "cuda" else {}
        dist.init_process_group(self.backend, timeout=datetime.timedelta(seconds=60), rank=self.rank,
                                world_size=self.size, store=dist.PrefixStore(f"group {self.begun}", self.store),
                                **bound)

    def random(self, rank, count, dtype, salt=0):
        """The input of a rank, as every rank can make it."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + salt * 1009 + rank)
        if dtype.is_floating_point:
            return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
        low, high = (0, 2) if dtype == torch.bool else (0 if dtype == torch.uint8 else -5, 6)
        return torch.randint(low, high, (count,), generator=generator).to(dtype)

    def mine(self, count, dtype, salt=0):
        return self.random(self.rank, count, dtype, salt).to(self.device)

    def everyone(self, count, dtype, salt=0):
        return [self.random(rank, count, dtype, salt) for rank in range(self.size)]

    def empty(self, count, dtype):
        """Poisoned memory: unwritten values are seen."""
        return torch.full((count,), 1 if dtype == torch.bool else 77, dtype=dtype, device=self.device)


_differences = []  # differences of the current check: ranks go on, since their peers wait for the next call


def equal(got, wanted, what, tolerance=0.0):
    """Notes a difference, beyond a relative and absolute tolerance."""
    got, wanted = got.detach().cpu(), wanted.detach().cpu()
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        _differences.append(f"{what}: {got.shape} {got.dtype} instead of {wanted.shape} {wanted.dtype}")
        return
    if got.dtype == torch.bool:
        same = got == wanted
    elif tolerance == 0.0:  # to the bit
        same = got.view(torch.uint8).eq(wanted.view(torch.uint8)).view(-1, got.element_size()).all(1)
    else:
        same = torch.isclose(got.double(), wanted.double(), rtol=tolerance, atol=tolerance)
    if not bool(same.all()):
        at = int((~same).nonzero()[0][0])
        _differences.append(f"{what}: {int((~same).sum())} of {same.numel()} wrong, the first at {at}: "
                            f"{got[at:at + 3].tolist()} instead of {wanted[at:at + 3].tolist()}")


class Skip(Exception):
    """There is nothing to check here, and why."""


def run_all(ranks, checks):
    """Runs each check on all ranks. Stops after a check that failed in a way other than a wrong result. Prints a table
    on rank 0. True if all is well."""
    outcomes = []
    for number, check in enumerate(checks):
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        start = time.monotonic()
        outcome, detail = run_one(ranks, check)
        ranks.store.set(f"{number}/{ranks.rank}", f"{outcome}|{detail}")
        all_outcomes = [ranks.store.get(f"{number}/{rank}").decode().split("|", 1) for rank in range(ranks.size)]
        worst = max(all_outcomes, key=lambda one: ["passed", "skipped", "WRONG", "BROKEN"].index(one[0]))
        outcomes.append(worst[0])
        if ranks.rank == 0:
            print(f"{worst[0]:8} {time.monotonic() - start:6.2f} s  {check.__name__:34} {worst[1]}", flush=True)
        if worst[0] == "BROKEN":
            break
    faulthandler.cancel_dump_traceback_later()
    ranks.store.set(f"end/{ranks.rank}", "")
    if ranks.rank == 0:
        for rank in range(ranks.size):  # if no other process keeps the store, it ends with this process
            ranks.store.get(f"end/{rank}")
        counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in sorted(set(outcomes)))
        print(f"{len(outcomes)} of {len(checks)} checks, {ranks.size} ranks: {counts}", flush=True)
    return len(outcomes) == len(checks) and not {"WRONG", "BROKEN"} & set(outcomes)


def run_one(ranks, check):
    _differences.clear()
    try:
        detail = check(ranks) or ""
        if ranks.device.type == "cuda":
            torch.cuda.synchronize()
        if _differences:
            return "WRONG", f"rank {ranks.rank}, {len(_differences)} results: {_differences[0]}"
        return "passed", detail
    except Skip as why:
        return "skipped", str(why)
    except Exception as failure:  # pylint: disable=broad-except
        traceback.print_exc(file=sys.stderr)
        return "BROKEN", f"rank {ranks.rank}: {type(failure).__name__}: {(str(failure).splitlines() or [''])[0]}"
