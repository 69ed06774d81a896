#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every collective of torch.distributed, against references worked out without it.

    torchrun --nproc-per-node 2 torch_collectives.py --expect tutti [--eager] [--only NAME]

PyTorch's wheels look for libnccl.so.2 beside themselves before they look at LD_LIBRARY_PATH: preload it.
"""

import argparse
import os
import random
import sys

import torch
import torch.distributed as dist

import loaded
from torch_harness import FLOATS, INTEGERS, TOLERANCE, TYPES, Ranks, Skip, equal, run_all

COUNTS = [1, 1000, 70001]
Op = dist.ReduceOp


def reduced(inputs, op, factors=None):
    """In the order of the ranks, in a wider type."""
    dtype = inputs[0].dtype
    if dtype == torch.bool:
        stacked = torch.stack(inputs)
        return stacked.any(0) if op in (Op.SUM, Op.MAX) else stacked.all(0)
    wide = torch.stack([one.double() if dtype.is_floating_point else one.long() for one in inputs])
    if factors is not None:
        wide = wide * torch.tensor(factors, dtype=wide.dtype)[:, None]
    if op == Op.PRODUCT:
        return wide.prod(0).to(dtype)
    if op in (Op.MAX, Op.MIN):
        return (wide.amax(0) if op == Op.MAX else wide.amin(0)).to(dtype)
    total = wide.sum(0)
    return (total / len(inputs) if op == Op.AVG else total).to(dtype)


def ops_of(ranks, dtype):
    ops = [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX]
    return ops + [Op.AVG] if dtype.is_floating_point and ranks.backend == "nccl" else ops


def all_reduce(ranks):
    cases = 0
    for dtype in TYPES:
        for op in ops_of(ranks, dtype):
            for count in COUNTS:
                data = ranks.mine(count, dtype, cases)
                dist.all_reduce(data, op)
                wanted = reduced(ranks.everyone(count, dtype, cases), op)
                equal(data, wanted, f"{dtype} {op} {count}", TOLERANCE.get(dtype, 0.0))
                cases += 1
    return f"{cases} cases"


def all_reduce_pre_multiplied(ranks):
    if ranks.backend != "nccl":
        raise Skip("of nccl only")
    for dtype in FLOATS:
        if dtype == torch.bfloat16:
            continue  # PyTorch 2.11 hands the bits of a float32 to the library as the factor: zero, for short ones
        for on_gpu in (False, True):
            factor = torch.tensor([0.5], dtype=dtype, device=ranks.device) if on_gpu else 0.5
            op = dist._make_nccl_premul_sum(factor)
            data = ranks.mine(1000, dtype)
            dist.all_reduce(data, op)
            wanted = reduced(ranks.everyone(1000, dtype), Op.SUM, [0.5] * ranks.size)
            equal(data, wanted, f"{dtype} factor {'on the GPU' if on_gpu else 'of the host'}", TOLERANCE[dtype])


def all_reduce_large(ranks):
    count = (64 << 20) // 4 + 3
    data = ranks.mine(count, torch.float32)
    dist.all_reduce(data)
    equal(data, reduced(ranks.everyone(count, torch.float32), Op.SUM), "64 MiB", 1e-5)


def reduce(ranks):
    for root in range(ranks.size):
        for dtype in TYPES:
            data = ranks.mine(1000, dtype, root)
            dist.reduce(data, root)
            if ranks.rank == root:
                wanted = reduced(ranks.everyone(1000, dtype, root), Op.SUM)
                equal(data, wanted, f"{dtype} to {root}", TOLERANCE.get(dtype, 0.0))


def broadcast(ranks):
    for root in range(ranks.size):
        for dtype in TYPES:
            data = ranks.mine(70001, dtype, root)
            dist.broadcast(data, root)
            equal(data, ranks.random(root, 70001, dtype, root), f"{dtype} from {root}")


def all_gather(ranks):
    for dtype in TYPES:
        for count in COUNTS:
            wanted = ranks.everyone(count, dtype)
            parts = [ranks.empty(count, dtype) for _ in range(ranks.size)]
            dist.all_gather(parts, ranks.mine(count, dtype))
            for rank, part in enumerate(parts):
                equal(part, wanted[rank], f"{dtype} {count} of {rank}")
            whole = ranks.empty(count * ranks.size, dtype)
            dist.all_gather_into_tensor(whole, ranks.mine(count, dtype))
            equal(whole, torch.cat(wanted), f"{dtype} {count} into one")


def all_gather_in_place(ranks):
    count = 4097
    whole = ranks.empty(count * ranks.size, torch.float32)
    own = whole[ranks.rank * count:(ranks.rank + 1) * count]
    own.copy_(ranks.mine(count, torch.float32))
    dist.all_gather_into_tensor(whole, own)
    equal(whole, torch.cat(ranks.everyone(count, torch.float32)), "in place")


def all_gather_uneven(ranks):
    if ranks.backend != "nccl":
        raise Skip("of nccl only")
    counts = [17 + 1000 * rank for rank in range(ranks.size)]
    parts = [ranks.empty(count, torch.float32) for count in counts]
    dist.all_gather(parts, ranks.mine(counts[ranks.rank], torch.float32))
    for rank, part in enumerate(parts):
        equal(part, ranks.random(rank, counts[rank], torch.float32), f"of {rank}")


def reduce_scatter(ranks):
    for dtype in FLOATS + INTEGERS:
        for op in ops_of(ranks, dtype):
            count = 5003
            wanted = reduced(ranks.everyone(count * ranks.size, dtype), op).chunk(ranks.size)[ranks.rank]
            data = ranks.mine(count * ranks.size, dtype)
            out = ranks.empty(count, dtype)
            dist.reduce_scatter_tensor(out, data, op)
            equal(out, wanted, f"{dtype} {op}", TOLERANCE.get(dtype, 0.0))
            out = ranks.empty(count, dtype)
            dist.reduce_scatter(out, list(data.chunk(ranks.size)), op)
            equal(out, wanted, f"{dtype} {op} of a list", TOLERANCE.get(dtype, 0.0))


def all_to_all_single(ranks):
    for dtype in TYPES:
        count = 3001
        out = ranks.empty(count * ranks.size, dtype)
        dist.all_to_all_single(out, ranks.mine(count * ranks.size, dtype))
        wanted = [one.chunk(ranks.size)[ranks.rank] for one in ranks.everyone(count * ranks.size, dtype)]
        equal(out, torch.cat(wanted), f"{dtype}")


def all_to_all_uneven(ranks):
    """Rank a sends (a + 2b) mod 5 thousands to b: some send nothing."""
    def count(a, b):
        return (a + 2 * b) % 5 * 1000
    sends = [count(ranks.rank, b) for b in range(ranks.size)]
    receives = [count(a, ranks.rank) for a in range(ranks.size)]
    out = ranks.empty(sum(receives), torch.float32)
    dist.all_to_all_single(out, ranks.mine(sum(sends), torch.float32), receives, sends)
    wanted = []
    for a in range(ranks.size):
        of_a = [count(a, b) for b in range(ranks.size)]
        wanted.append(ranks.random(a, sum(of_a), torch.float32).split(of_a)[ranks.rank])
    equal(out, torch.cat(wanted), "uneven")


def all_to_all_lists(ranks):
    if ranks.backend != "nccl":
        raise Skip("of nccl only")
    parts = [ranks.empty(100 + a, torch.int32) for a in range(ranks.size)]
    mine = [torch.full((100 + ranks.rank,), ranks.rank * 10 + b, dtype=torch.int32, device=ranks.device)
            for b in range(ranks.size)]
    dist.all_to_all(parts, mine)
    for a, part in enumerate(parts):
        equal(part, torch.full((100 + a,), a * 10 + ranks.rank, dtype=torch.int32), f"of {a}")


def gather_and_scatter(ranks):
    for root in range(ranks.size):
        at_root = ranks.rank == root
        parts = [ranks.empty(1001, torch.float32) for _ in range(ranks.size)] if at_root else None
        dist.gather(ranks.mine(1001, torch.float32), parts, root)
        for rank, part in enumerate(parts or []):
            equal(part, ranks.random(rank, 1001, torch.float32), f"gathered of {rank}")
        out = ranks.empty(1001, torch.float32)
        whole = ranks.random(root, 1001 * ranks.size, torch.float32, 5)
        dist.scatter(out, [part.to(ranks.device) for part in whole.chunk(ranks.size)] if at_root else None, root)
        equal(out, whole.chunk(ranks.size)[ranks.rank], f"scattered by {root}")


def need_pairs(ranks):
    if ranks.size < 2:
        raise Skip("needs two ranks")


def send_and_recv(ranks):
    need_pairs(ranks)
    for count in COUNTS + [5 << 20]:
        for sender in range(ranks.size):
            receiver = (sender + 1) % ranks.size
            if ranks.rank == sender:
                dist.send(ranks.mine(count, torch.float32), receiver)
            elif ranks.rank == receiver:
                out = ranks.empty(count, torch.float32)
                dist.recv(out, sender)
                equal(out, ranks.random(sender, count, torch.float32), f"{count} from {sender}")


def batch_isend_irecv(ranks):
    """Around the ring in both directions, several messages each."""
    need_pairs(ranks)
    messages, places = [], []
    for number in range(4):
        for step in (1, -1):
            to, source = (ranks.rank + step) % ranks.size, (ranks.rank - step) % ranks.size
            out = ranks.empty(1000 * (number + 1), torch.float32)
            salt = number * 2 + (step > 0)
            messages.append(dist.P2POp(dist.isend, ranks.mine(out.numel(), torch.float32, salt), to))
            messages.append(dist.P2POp(dist.irecv, out, source))
            places.append((out, source, salt))
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    for out, source, salt in places:
        equal(out, ranks.random(source, out.numel(), torch.float32, salt), f"message {salt} from {source}")


def barrier(_):
    for _ in range(10):
        dist.barrier()


def objects(ranks):
    mine = {"rank": ranks.rank, "list": list(range(ranks.rank * 100))}
    everyone = [None] * ranks.size
    dist.all_gather_object(everyone, mine)
    assert [one["rank"] for one in everyone] == list(range(ranks.size)), everyone
    shared = [mine, "text"] if ranks.rank == 0 else [None, None]
    dist.broadcast_object_list(shared, 0, device=ranks.device)
    assert shared == [{"rank": 0, "list": []}, "text"], shared
    gathered = [None] * ranks.size if ranks.rank == 0 else None
    dist.gather_object(mine, gathered, 0)
    assert gathered is None or len(gathered[-1]["list"]) == 100 * (ranks.size - 1), gathered
    part = [None]
    dist.scatter_object_list(part, [f"for {rank}" for rank in range(ranks.size)] if ranks.rank == 0 else None, 0)
    assert part == [f"for {ranks.rank}"], part


def check_group(ranks, group, members):
    if ranks.rank not in members:
        return
    data = ranks.mine(1000, torch.float32)
    dist.all_reduce(data, group=group)
    wanted = reduced([ranks.random(rank, 1000, torch.float32) for rank in members], Op.SUM)
    equal(data, wanted, f"group {members}", 1e-5)


def new_groups(ranks):
    """All communicators, each alone, the even ranks; used in turn, then given back."""
    lists = [list(range(ranks.size)), *[[rank] for rank in range(ranks.size)], list(range(0, ranks.size, 2))]
    groups = [dist.new_group(members) for members in lists]
    for _ in range(3):
        for group, members in zip(groups, lists):
            check_group(ranks, group, members)
    for group, members in zip(groups, lists):
        if ranks.rank in members:
            dist.destroy_process_group(group)
    check_group(ranks, None, lists[0])


def split_groups(ranks):
    if ranks.backend != "nccl" or not ranks.eager:
        raise Skip("needs nccl and --eager")
    for lists in ([list(range(ranks.size))], [[rank] for rank in range(ranks.size)]):
        group = dist.split_group(split_ranks=lists)
        members = next(members for members in lists if ranks.rank in members)
        check_group(ranks, group, members)
        dist.destroy_process_group(group)


def coalesced(ranks):
    if ranks.backend != "nccl":
        raise Skip("of nccl only")
    with dist.distributed_c10d._coalescing_manager(device=ranks.device, async_ops=True) as manager:
        data = [ranks.mine(1000 * (i + 1), torch.float32, i) for i in range(5)]
        for one in data:
            dist.all_reduce(one)
    manager.wait()
    for i, one in enumerate(data):
        equal(one, reduced(ranks.everyone(1000 * (i + 1), torch.float32, i), Op.SUM), f"all_reduce {i}", 1e-5)
    outs = [ranks.empty(100 * (i + 1) * ranks.size, torch.float32) for i in range(3)]
    with dist.distributed_c10d._coalescing_manager(device=ranks.device):
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, ranks.mine(100 * (i + 1), torch.float32, i))
    for i, out in enumerate(outs):
        equal(out, torch.cat(ranks.everyone(100 * (i + 1), torch.float32, i)), f"all_gather {i}")


def asynchronous(ranks):
    """Many calls at once; the waits are in a different order."""
    data = [ranks.mine(1 + 977 * i, torch.float32, i) for i in range(40)]
    works = [dist.all_reduce(one, async_op=True) for one in data]
    order = list(range(len(data)))
    random.Random(ranks.seed).shuffle(order)
    for i in order:
        works[i].wait()
        equal(data[i], reduced(ranks.everyone(1 + 977 * i, torch.float32, i), Op.SUM), f"{i}", 1e-5)


def need_gpu(ranks):
    if ranks.device.type != "cuda":
        raise Skip("needs a GPU")


def several_streams(ranks):
    """Calls that wait and calls that do not, on streams that change: the communicator's kernels must not overlap."""
    need_gpu(ranks)
    streams = [torch.cuda.Stream() for _ in range(4)]
    data, works = [], []
    torch.cuda.synchronize()
    for i in range(60):
        with torch.cuda.stream(streams[i % 4]):
            one = ranks.mine(1 + 3001 * (i % 7), torch.float32, i)
            works.append(dist.all_reduce(one, async_op=i % 3 == 0))
            data.append(one)
    for work in works:
        if work is not None:
            work.wait()
    torch.cuda.synchronize()
    for i, one in enumerate(data):
        equal(one, reduced(ranks.everyone(1 + 3001 * (i % 7), torch.float32, i), Op.SUM), f"{i}", 1e-5)


def graphs(ranks):
    """Several collectives and kernels in one graph, replayed with new input."""
    need_gpu(ranks)
    count = 5000
    data = torch.zeros(count, device=ranks.device)
    whole = torch.zeros(count * ranks.size, device=ranks.device)

    def step():
        scaled = data * 2
        dist.all_reduce(scaled)
        dist.all_gather_into_tensor(whole, scaled + ranks.rank)
        out = torch.empty(count, device=ranks.device)
        dist.reduce_scatter_tensor(out, whole)
        return out

    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for replay in range(30):
        data.copy_(ranks.mine(count, torch.float32, replay))
        graph.replay()
        total = reduced(ranks.everyone(count, torch.float32, replay), Op.SUM).double() * 2
        equal(whole.view(ranks.size, count)[-1], (total + ranks.size - 1).float(), f"replay {replay}", 1e-4)
        equal(out, ((total + ranks.rank) * ranks.size).float(), f"replay {replay}, scattered", 1e-4)
        check_group(ranks, None, list(range(ranks.size)))  # between replays, on the same stream
    del graph


def registered_memory(ranks):
    """Memory of ncclMemAlloc, registered with the communicator."""
    need_gpu(ranks)
    if not ranks.eager:
        raise Skip("needs --eager")
    backend = dist.group.WORLD._get_backend(ranks.device)
    try:
        pool = torch.cuda.MemPool(backend.mem_allocator)
    except RuntimeError as refusal:  # of PyTorch itself, before it asks the library
        if "is not supported" in str(refusal):
            raise Skip(str(refusal)) from refusal
        raise
    with torch.cuda.use_mem_pool(pool):
        data = torch.empty(100_000, device=ranks.device)
    backend.register_mem_pool(pool)
    data.copy_(ranks.mine(100_000, torch.float32))
    dist.all_reduce(data)
    equal(data, reduced(ranks.everyone(100_000, torch.float32), Op.SUM), "registered", 1e-5)
    backend.deregister_mem_pool(pool)


def estimated_time(ranks):
    need_gpu(ranks)
    data = ranks.mine(1 << 20, torch.float32)
    before = data.clone()
    with dist.distributed_c10d._time_estimator(device=ranks.device) as estimate:
        dist.all_reduce(data)
    torch.cuda.synchronize()
    equal(data, before, "nothing may run")
    assert estimate.estimated_time > 0, estimate.estimated_time
    return f"{estimate.estimated_time:.1f} µs for 4 MiB"


def nothing(ranks):
    """Counts of zero."""
    data = torch.empty(0, device=ranks.device)
    dist.all_reduce(data)
    dist.broadcast(data, 0)
    dist.all_gather_into_tensor(torch.empty(0, device=ranks.device), data)
    check_group(ranks, None, list(range(ranks.size)))


def again_from_the_start(ranks):
    for _ in range(2):
        dist.destroy_process_group()
        ranks.begin()
        check_group(ranks, None, list(range(ranks.size)))


CHECKS = [barrier, all_reduce, all_reduce_pre_multiplied, all_reduce_large, reduce, broadcast, all_gather,
          all_gather_in_place, all_gather_uneven, reduce_scatter, all_to_all_single, all_to_all_uneven,
          all_to_all_lists, gather_and_scatter, send_and_recv, batch_isend_irecv, objects, new_groups, split_groups,
          coalesced, asynchronous, several_streams, graphs, registered_memory, estimated_time, nothing,
          again_from_the_start]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expect", choices=["tutti", "nccl", "any"], default="any", help="whose library it must be")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--eager", action="store_true", help="init_process_group(device_id=...)")
    parser.add_argument("--only", default="", help="checks whose names contain this")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    options = parser.parse_args()
    file = loaded.check(options.expect) if options.backend == "nccl" else "none"
    ranks = Ranks(options.backend, options.seed, options.eager)
    if ranks.rank == 0:
        ranks.store.set("seed", str(options.seed))
    ranks.seed = int(ranks.store.get("seed"))
    if ranks.rank == 0:
        print(f"libnccl.so.2: {file}; PyTorch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, seed {ranks.seed}",
              flush=True)
    well = run_all(ranks, [check for check in CHECKS if options.only in check.__name__])
    sys.stdout.flush()
    if not well:
        os._exit(1)  # the process group may be in no state to be destroyed
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
