# SPDX-License-Identifier: Apache-2.0
"""The common part of host_vs_peers.py and hosts_vs_peers.py: arguments, rounds, results of programs, tables.

Each round runs every library once, in an order that rotates from round to round, so that disturbances of the machine
affect all libraries equally. A figure is the median over the rounds. Sizes count as in nccl-tests: the whole receive
buffer of all_gather, the whole send buffer of reduce_scatter, the buffer of every other collective.
"""

import argparse
import collections
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

from net import size_bytes, size_text

LIBRARIES = ["tutti", "openmpi", "gloo"]
LACKS = {("gloo", "reduce_scatter")}
EARLIER = "earlier"  # a different build of Tutti
PROGRAMS = {"openmpi": "mpi_peer", "gloo": "gloo_peer"}
TITLES = {"tutti": "Tutti µs", EARLIER: "earlier Tutti µs", "openmpi": "Open MPI µs", "gloo": "Gloo µs"}
ELEMENT_BYTES = 4

Cell = collections.namedtuple("Cell", "collective ranks bytes")


def microseconds(us):
    return f"{us:.2f}" if us < 10 else f"{us:.1f}"


def sizes_of(args, collective, ranks):
    """The sizes of one table. A collective of one block per rank starts where every rank has an element."""
    has_blocks = collective in ("all_gather", "reduce_scatter", "all_to_all")
    size = max(args.min, ELEMENT_BYTES * ranks) if has_blocks else args.min
    sizes = []
    while size <= args.max:
        sizes.append(size)
        size *= args.factor
    return sizes


def program(args, library):
    """The path of the program that measures a library."""
    build = args.earlier if library == EARLIER else args.build
    return build / "bin" / PROGRAMS.get(library, "tutti")


def libraries(args):
    """The chosen libraries whose program is built, with the earlier Tutti if there is one."""
    found = []
    for library in args.libraries + ([EARLIER] if args.earlier else []):
        if program(args, library).exists():
            found.append(library)
        else:
            print(f"{program(args, library)} is missing: {library} is left out; build it with ./dev build release all",
                  file=sys.stderr)
    return found


def range_arguments(args, sizes, iterations):
    """`iterations`: calls of a batch; None: as many as take 20 ms."""
    limit = ["--iters", str(iterations)] if iterations else []
    return ["--min", str(sizes[0]), "--max", str(sizes[-1]), "--factor", str(args.factor), *limit]


def times_of_tutti(file):
    """{bytes: microseconds} from the file that `tutti bench --json` writes."""
    results = json.loads(file.read_text())
    # The peers broadcast in place only; their root copies nothing.
    time = "in_place_time_us" if results["collective"] == "broadcast" else "time_us"
    return {row["bytes"]: row[time] for row in results["results"]}


def times_of_peer(output):
    """{bytes: microseconds} from the lines that mpi_peer and gloo_peer print."""
    return {row["bytes"]: row["us"] for row in map(json.loads, output.splitlines())}


def measure_rounds(args, names, bands, measure, begin_round=lambda: None):
    """{cell: {library: [microseconds of each round]}}

    `bands` are (smallest bytes, largest bytes, iterations of a batch). measure(library, collective, ranks, sizes,
    iterations) returns the microseconds by size. It is not called for a library without the collective.
    """
    samples = collections.defaultdict(lambda: collections.defaultdict(list))
    for turn in range(args.rounds):
        begin_round()
        first = turn % max(1, len(names))
        for collective, ranks in ((c, n) for n in args.ranks for c in args.collectives):
            print(f"round {turn + 1} of {args.rounds}: {collective}, {ranks} ranks", file=sys.stderr)
            for lowest, highest, iterations in bands:
                sizes = [s for s in sizes_of(args, collective, ranks) if lowest <= s <= highest]
                having = [n for n in names[first:] + names[:first] if (n, collective) not in LACKS]
                for library in having if sizes else []:
                    times = measure(library, collective, ranks, sizes, args.iterations or iterations)
                    for size, us in times.items():
                        samples[Cell(collective, ranks, size)][library].append(us)
    return samples


def table(args, samples, collective, ranks, floor=None):
    """The lines of one table. floor(cell): microseconds of the floor's column; without it, there is no such column."""
    columns = ["tutti"] + [EARLIER] * (args.earlier is not None) + [n for n in LIBRARIES[1:] if n in args.libraries]
    titles = ["size"] + [TITLES[name] for name in columns] + ["floor µs"] * (floor is not None) + ["best peer / Tutti"]
    lines = [f"| {' | '.join(titles)} |", "|---:" * len(titles) + "|"]
    for cell in sorted(c for c in samples if (c.collective, c.ranks) == (collective, ranks)):
        medians = {name: statistics.median(values) for name, values in samples[cell].items()}
        row = [size_text(cell.bytes)]
        row += [microseconds(medians[name]) if name in medians else "–" for name in columns]
        row += [microseconds(floor(cell))] if floor is not None else []
        peers = [us for name, us in medians.items() if name not in ("tutti", EARLIER)]
        row.append(f"{min(peers) / medians['tutti']:.2f}" if peers and "tutti" in medians else "–")
        lines.append(f"| {' | '.join(row)} |")
    return lines + [""]


def parser_of(description, collectives, rounds):
    """The common arguments."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="the build folder")
    parser.add_argument("--earlier", type=pathlib.Path, metavar="FOLDER",
                        help="the build folder of an earlier Tutti, which is measured beside this one")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--collectives", nargs="+", choices=collectives, default=collectives)
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4], help="of a job (default 2 4)")
    parser.add_argument("--min", type=size_bytes, default=8, help="smallest size, for example 8 or 4K (default 8)")
    parser.add_argument("--max", type=size_bytes, default=64 << 20, help="largest size (default 64M)")
    parser.add_argument("--factor", type=int, default=8, help="from one size to the next (default 8)")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"runs of each library (default {rounds})")
    parser.add_argument("--iterations", type=int, help="calls of a batch")
    parser.add_argument("--tutti-args", type=shlex.split, default=[], help="further arguments of tutti bench")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="also write the tables to FILE")
    return parser


def report(args, make_text):
    """Prints the text that make_text() measures and returns."""
    try:
        text = make_text()
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        sys.exit(str(failure))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
