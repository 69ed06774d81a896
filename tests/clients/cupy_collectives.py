#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy's NCCL module: one process for each GPU, every call of it, checked.

    cupy_collectives.py --expect tutti --ranks 2
"""

import argparse
import multiprocessing
import sys

import numpy
import cupy
from cupy.cuda import nccl

import loaded

TYPES = {numpy.float32: nccl.NCCL_FLOAT32, numpy.float64: nccl.NCCL_FLOAT64, numpy.float16: nccl.NCCL_FLOAT16,
         numpy.int32: nccl.NCCL_INT32, numpy.int64: nccl.NCCL_INT64, numpy.uint8: nccl.NCCL_UINT8}
COUNT = 10_007


def numbers(rank, count, kind):
    return numpy.random.default_rng(rank + 11).integers(0, 9, count).astype(kind)


class Calls:
    def __init__(self, comm, rank, ranks):
        self.comm, self.rank, self.ranks = comm, rank, ranks
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def run(self, call, send, receive_count, *rest):
        """The call's result on the host; `rest`: the arguments after the count."""
        source = cupy.asarray(send)
        target = cupy.full(receive_count, 77, source.dtype)
        cupy.cuda.Device().synchronize()
        call(source.data.ptr, target.data.ptr, *rest, self.stream.ptr)
        self.stream.synchronize()
        return target.get()

    def check(self, kind):
        code, comm, rank, ranks = TYPES[kind], self.comm, self.rank, self.ranks
        all_of = [numbers(r, COUNT, kind) for r in range(ranks)]
        whole_of = [numbers(r, COUNT * ranks, kind) for r in range(ranks)]
        total = sum(one.astype(numpy.int64) for one in all_of).astype(kind)
        same = numpy.testing.assert_array_equal
        same(self.run(comm.allReduce, all_of[rank], COUNT, COUNT, code, nccl.NCCL_SUM), total)
        same(self.run(comm.allReduce, all_of[rank], COUNT, COUNT, code, nccl.NCCL_MAX), numpy.max(all_of, 0))
        got = self.run(comm.reduce, all_of[rank], COUNT, COUNT, code, nccl.NCCL_SUM, 0)
        same(got, total if rank == 0 else numpy.full(COUNT, 77, kind))
        same(self.run(comm.broadcast, all_of[rank], COUNT, COUNT, code, ranks - 1), all_of[-1])
        same(self.run(comm.allGather, all_of[rank], COUNT * ranks, COUNT, code), numpy.concatenate(all_of))
        summed = sum(one.astype(numpy.int64) for one in whole_of).astype(kind)
        same(self.run(comm.reduceScatter, whole_of[rank], COUNT, COUNT, code, nccl.NCCL_SUM),
             summed[rank * COUNT:(rank + 1) * COUNT])
        if ranks > 1:
            self.check_messages(kind)

    def check_messages(self, kind):
        code = TYPES[kind]
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        source = cupy.asarray(numbers(self.rank, COUNT, kind))
        target = cupy.zeros(COUNT, kind)
        cupy.cuda.Device().synchronize()
        nccl.groupStart()
        self.comm.send(source.data.ptr, COUNT, code, after, self.stream.ptr)
        self.comm.recv(target.data.ptr, COUNT, code, before, self.stream.ptr)
        nccl.groupEnd()
        self.stream.synchronize()
        numpy.testing.assert_array_equal(target.get(), numbers(before, COUNT, kind))


def run(rank, ranks, unique_id, expected, outcome):
    file = loaded.check(expected)
    cupy.cuda.Device(rank % cupy.cuda.runtime.getDeviceCount()).use()
    comm = nccl.NcclCommunicator(ranks, unique_id, rank)
    assert comm.size() == ranks and comm.rank_id() == rank
    calls = Calls(comm, rank, ranks)
    for kind in TYPES:
        calls.check(kind)
    comm.check_async_error()
    comm.destroy()
    outcome.put((rank, file))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expect", choices=["tutti", "nccl", "any"], default="any")
    parser.add_argument("--ranks", type=int, default=cupy.cuda.runtime.getDeviceCount())
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    outcome = spawn.Queue()
    unique_id = nccl.get_unique_id()
    ranks = [spawn.Process(target=run, args=(rank, options.ranks, unique_id, options.expect, outcome))
             for rank in range(options.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(100)
        if process.is_alive():
            process.kill()
    for process in ranks:
        process.join()
    well = all(process.exitcode == 0 for process in ranks)
    file = outcome.get()[1] if well else f"the ranks ended with {[process.exitcode for process in ranks]}"
    if well:
        loaded.check_log(options.expect, options.ranks)
    outcome_text = "passed" if well else "WRONG"
    print(f"{outcome_text:8} cupy {cupy.__version__}, {options.ranks} ranks, {len(TYPES)} types, {file}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
