#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with DistributedDataParallel and with FullyShardedDataParallel, equally in each run, and
writes the losses.

    torchrun --nproc-per-node 2 torch_training.py --expect tutti --out losses.json
    torch_training.py --compare one.json other.json
"""

import argparse
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import loaded

# Different libraries round sums of gradients in different orders; over the steps, the difference grows.
TOLERANCE = {"ddp": 1e-3, "fsdp": 1e-3, "fsdp_bf16": 5e-2}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                  nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed(x)


def model_of(width, layers, words, device):
    torch.manual_seed(7)
    return nn.Sequential(nn.Embedding(words, width), *[Block(width) for _ in range(layers)],
                         nn.Linear(width, words)).to(device)


def train(model, steps, words, device):
    """Each rank predicts the next word of its own sequences of a pattern; all ranks' mean losses, by step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(steps):
        start = torch.randint(0, words, (8, 1), generator=generator)
        text = ((start + torch.arange(33) * (1 + start % 3)) % words).to(device)
        logits = model(text[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / dist.get_world_size())
    return losses


def shard(model, precision):
    for block in model:
        if isinstance(block, Block):
            fully_shard(block, mp_policy=precision)
    return fully_shard(model, mp_policy=precision)


def run(options):
    backend = options.backend
    file = loaded.check(options.expect) if backend == "nccl" else "none"
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
    words, size = 101, {"width": options.width, "layers": 3, "words": 101}
    result = {"library": loaded.owner(file) if backend == "nccl" else backend, "ranks": dist.get_world_size()}
    ways = {
        "ddp": lambda: DistributedDataParallel(model_of(**size, device=device), bucket_cap_mb=1),
        "fsdp": lambda: shard(model_of(**size, device=device), MixedPrecisionPolicy()),
        "fsdp_bf16": lambda: shard(model_of(**size, device=device), MixedPrecisionPolicy(param_dtype=torch.bfloat16)),
    }
    for name, build in ways.items():
        start = time.monotonic()
        result[name] = train(build(), options.steps, words, device)
        if dist.get_rank() == 0:
            print(f"{name:10} loss {result[name][0]:.4f} → {result[name][-1]:.4f} in {options.steps} steps, "
                  f"{time.monotonic() - start:.1f} s, {result['library']} ({file})", flush=True)
    if dist.get_rank() == 0 and options.out:
        with open(options.out, "w", encoding="utf-8") as out:
            json.dump(result, out)
    dist.destroy_process_group()
    learned = all(result[name][-1] < 0.8 * result[name][0] for name in ways)
    return 0 if learned else 1


def compare(one, other):
    runs = []
    for path in (one, other):
        with open(path, encoding="utf-8") as file:
            runs.append(json.load(file))
    wrong = 0
    for name, tolerance in TOLERANCE.items():
        pairs = list(zip(runs[0][name], runs[1][name], strict=True))
        worst = max(abs(a - b) / abs(a) for a, b in pairs)
        wrong += not worst <= tolerance
        print(f"{'passed' if worst <= tolerance else 'WRONG':8} {name:10} {runs[0]['library']} and "
              f"{runs[1]['library']}: {len(pairs)} losses differ by {worst:.2e} at most; {tolerance:.0e} allowed")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expect", choices=["tutti", "nccl", "any"], default="any")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--out")
    parser.add_argument("--compare", nargs=2)
    options = parser.parse_args()
    return compare(*options.compare) if options.compare else run(options)


if __name__ == "__main__":
    sys.exit(main())
