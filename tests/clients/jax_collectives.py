#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX: collectives of pmap and shard_map over all GPUs of one process, checked.

    jax_collectives.py --expect tutti
"""

import argparse
import functools
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("JAX_PLATFORMS", "cuda")

# pylint: disable=wrong-import-position
import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import loaded

COUNT = 8 * 1001


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expect", choices=["tutti", "nccl", "any"], default="any")
    options = parser.parse_args()
    devices = jax.devices()
    if len(devices) < 2:
        print("skipped  jax: one GPU, so that nothing is communicated")
        return 77
    check(devices)
    file = loaded.check(options.expect)  # now that XLA has opened it
    loaded.check_log(options.expect, len(devices))
    print(f"passed   jax {jax.__version__}, {len(devices)} GPUs, {file}")
    return 0


def check(devices):
    ranks = len(devices)
    same = functools.partial(numpy.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    data = numpy.random.default_rng(3).standard_normal((ranks, COUNT * ranks)).astype(numpy.float32)

    for name, wanted in (("psum", data.sum(0)), ("pmax", data.max(0)), ("pmean", data.mean(0))):
        got = jax.pmap(functools.partial(getattr(jax.lax, name), axis_name="i"), axis_name="i")(data)
        for rank in range(ranks):
            same(numpy.asarray(got)[rank], wanted, err_msg=name)

    mesh = Mesh(numpy.array(devices), ("i",))
    sharded = jax.device_put(data, NamedSharding(mesh, PartitionSpec("i")))

    def over(function, out):
        mapped = jax.shard_map(function, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=out, check_vma=False)
        return numpy.asarray(jax.jit(mapped)(sharded))

    same(over(lambda x: jax.lax.psum(x, "i"), PartitionSpec()), data.sum(0, keepdims=True))
    same(over(lambda x: jax.lax.all_gather(x, "i", tiled=True), PartitionSpec()), data)
    parts = over(lambda x: jax.lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True), PartitionSpec("i"))
    same(parts.ravel(), data.sum(0))
    blocks = data.reshape(ranks, ranks, COUNT)
    swapped = over(lambda x: jax.lax.all_to_all(x.reshape(ranks, COUNT), "i", 0, 0, tiled=True), PartitionSpec("i"))
    same(swapped.reshape(ranks, ranks, COUNT), blocks.transpose(1, 0, 2))
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    same(over(lambda x: jax.lax.ppermute(x, "i", ring), PartitionSpec("i")), numpy.roll(data, 1, 0))


if __name__ == "__main__":
    sys.exit(main())
