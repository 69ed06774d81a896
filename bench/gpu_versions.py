#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds of Tutti on the GPUs of this machine, beside a library with NCCL's API.

Each part (collective, mode) is one run of `tutti bench --compare LIBRARY` by each build, in turn, in every round. The
library's times show whether the machine changed between two runs. A speed is the time of the build `before` over the
time of the build `after`: below 1, `after` is slower. Both times are medians of the rounds.
"""

import argparse
import math
import pathlib
import shlex
import statistics
import sys
import tempfile

import gpu_vs_nccl


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=pathlib.Path, required=True, help="the tool of the first build")
    parser.add_argument("--after", type=pathlib.Path, required=True, help="the tool of the second build")
    parser.add_argument("--library", default=gpu_vs_nccl.find_library(), help="(default %(default)s)")
    parser.add_argument("--gpus", type=int, default=2, help="number of GPUs (default 2)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each build (default 2)")
    parser.add_argument("--collectives", nargs="+", choices=gpu_vs_nccl.COLLECTIVES, default=gpu_vs_nccl.COLLECTIVES)
    parser.add_argument("--modes", nargs="+", choices=gpu_vs_nccl.MODES, default=gpu_vs_nccl.MODES)
    parser.add_argument("--min", default="8", help="smallest size (default 8)")
    parser.add_argument("--max", default="256M", help="largest size (default 256M)")
    parser.add_argument("--factor", type=int, default=8, help="from one size to the next (default 8)")
    parser.add_argument("--least", type=float, default=0.97, help="lists cells with a lower speed (default 0.97)")
    parser.add_argument("--set", action="append", type=gpu_vs_nccl.key_value, default=[], metavar="KEY=VALUE",
                        help="a setting of both builds; may be repeated")
    parser.add_argument("--tutti-args", type=shlex.split, default=[], help="further arguments of tutti bench")
    parser.add_argument("--limit", type=int, default=60, metavar="SECONDS", help="of one run (default 60)")
    return parser.parse_args()


def run(args, tool, part, folder):
    """The rows of one run by their size. Ends this program if the run fails or a result is wrong."""
    args.tutti, args.type, args.in_place, args.threads = tool, "float32", "no", False
    outcome = gpu_vs_nccl.measure(args, part, pathlib.Path(folder) / "part.json")
    wrong = sum(row["wrong"] for row in outcome.rows)
    if outcome.failure or wrong:
        sys.exit(f"{tool}, {part.collective}, {part.mode}: {outcome.failure or f'{wrong} wrong results'}")
    return {row["bytes"]: row for row in outcome.rows}


def measure(args, part, folder):
    """One row per size: (bytes, before µs, after µs, the library's µs beside before, and beside after)."""
    runs = {"before": [], "after": []}
    for index in range(args.rounds):
        for name in ("before", "after") if index % 2 == 0 else ("after", "before"):
            runs[name].append(run(args, getattr(args, name), part, folder))

    def median(name, size, key):
        return statistics.median(rows[size][key] for rows in runs[name])

    return [(size, median("before", size, "time_us"), median("after", size, "time_us"),
             median("before", size, "their_time_us"), median("after", size, "their_time_us"))
            for size in sorted(runs["before"][0])]


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def report(part, rows):
    speeds = [before / after for _, before, after, _, _ in rows]
    library = [before / after for _, _, _, before, after in rows]
    least = min(range(len(rows)), key=lambda index: speeds[index])
    print(f"| {part.collective} | {part.mode} | {mean(speeds):.3f} | {speeds[least]:.3f} "
          f"({gpu_vs_nccl.size_text(rows[least][0])}) | {mean(library):.3f} |", flush=True)


def main():
    args = parse_arguments()
    slower = []
    print("| collective | mode | speed, geometric mean | least speed | the library's mean |")
    print("|---|---|---:|---:|---:|")
    everything = []
    with tempfile.TemporaryDirectory() as folder:
        for collective in args.collectives:
            for mode in args.modes:
                part = gpu_vs_nccl.Part(args.gpus, collective, mode)
                rows = measure(args, part, folder)
                report(part, rows)
                everything += [row[1] / row[2] for row in rows]
                slower += [(part, row) for row in rows if row[1] / row[2] < args.least]
    print(f"| all | | {mean(everything):.3f} | {min(everything):.3f} | |")
    print(f"\n{len(slower)} of {len(everything)} cells are below {args.least}:")
    for part, (size, before, after, library_before, library_after) in slower:
        print(f"- {part.collective}, {part.mode}, {gpu_vs_nccl.size_text(size)}: {before:.2f} -> {after:.2f} µs "
              f"({before / after:.3f}); the library {library_before:.2f} and {library_after:.2f} µs")


if __name__ == "__main__":
    main()
