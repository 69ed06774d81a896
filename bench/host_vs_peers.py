#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Tutti's collectives on host memory with the collectives of Open MPI and Gloo on this machine.

Each round runs every library once, in an order that rotates from round to round, so that disturbances of the machine
affect all libraries equally. A figure is the median over the rounds. Sizes count as in nccl-tests: the whole receive
buffer of all_gather, the whole send buffer of reduce_scatter, the buffer of every other collective.
"""

import argparse
import collections
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast"]
LIBRARIES = ["tutti", "openmpi", "gloo"]
EARLIER = "earlier"  # a different build of Tutti
LACKS = {("gloo", "reduce_scatter")}
BANDS = [(0, 64 << 10, 200), ((64 << 10) + 1, 1 << 62, 10)]  # smallest bytes, largest bytes, iterations of a batch
RUN_TIMEOUT_S = 300
ELEMENT_BYTES = 4

Cell = collections.namedtuple("Cell", "collective ranks bytes")


def size_bytes(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1].upper() in units else int(text)


def sizes_of(args, collective, ranks):
    """The sizes of one table. A collective of one block per rank starts where every rank has an element."""
    size = max(args.min, ELEMENT_BYTES * ranks) if collective in ("all_gather", "reduce_scatter") else args.min
    sizes = []
    while size <= args.max:
        sizes.append(size)
        size *= args.factor
    return sizes


def programs(args):
    """The command prefix of each library that is built here."""
    found = {}
    for name, program in (("tutti", "tutti"), ("openmpi", "mpi_peer"), ("gloo", "gloo_peer")):
        path = args.build / "bin" / program
        if name not in args.libraries:
            continue
        if path.exists():
            found[name] = [str(path)]
        else:
            print(f"{path} is missing: {name} is left out; build it with ./dev build release all", file=sys.stderr)
    if args.earlier:
        found[EARLIER] = [str(args.earlier / "bin" / "tutti")]
    return found


def command_of(library, program, collective, ranks, extra):
    if library in ("tutti", EARLIER):
        return program + ["bench", collective, "--ranks", str(ranks)] + extra
    if library == "openmpi":
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        return launcher + program + [collective]
    return program + [collective, "--ranks", str(ranks)]


def run_group(command):
    """Runs a command in a process group of its own and leaves none of it behind."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=RUN_TIMEOUT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)} exited with {process.returncode}:\n{errors[-2000:]}")
    return output


def measure(library, command, sizes, factor, iterations, json_file):
    """Microseconds by size of one run."""
    command = command + ["--min", str(sizes[0]), "--max", str(sizes[-1]), "--factor", str(factor),
                         "--iters", str(iterations)]
    if library in ("tutti", EARLIER):
        run_group(command + ["--json", str(json_file)])
        results = json.loads(json_file.read_text())
        # The peers broadcast in place only; their root copies nothing.
        time = "in_place_time_us" if results["collective"] == "broadcast" else "time_us"
        return {row["bytes"]: row[time] for row in results["results"]}
    rows = [json.loads(line) for line in run_group(command).splitlines()]
    return {row["bytes"]: row["us"] for row in rows}


def measure_all(args):
    """{cell: {library: [microseconds of each round]}} over every collective, rank count and size."""
    samples = collections.defaultdict(lambda: collections.defaultdict(list))
    found = programs(args)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(args.rounds):
            order = list(found)[turn % len(found):] + list(found)[:turn % len(found)] if found else []
            for collective, ranks in ((c, n) for n in args.ranks for c in args.collectives):
                print(f"round {turn + 1} of {args.rounds}: {collective}, {ranks} ranks", file=sys.stderr)
                for lowest, highest, iterations in BANDS:
                    sizes = [s for s in sizes_of(args, collective, ranks) if lowest <= s <= highest]
                    for library in order if sizes else []:
                        if (library, collective) in LACKS:
                            continue
                        command = command_of(library, found[library], collective, ranks, args.tutti_args)
                        times = measure(library, command, sizes, args.factor, args.iterations or iterations,
                                        pathlib.Path(folder) / "tutti.json")
                        for size, us in times.items():
                            samples[Cell(collective, ranks, size)][library].append(us)
    return samples


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def microseconds(us):
    return f"{us:.2f}" if us < 10 else f"{us:.1f}"


def table_row(medians, columns):
    cells = [microseconds(medians[name]) if name in medians else "–" for name in columns]
    peers = [us for name, us in medians.items() if name not in ("tutti", EARLIER)]
    ratio = f"{min(peers) / medians['tutti']:.2f}" if peers and "tutti" in medians else "–"
    return cells + [ratio]


def markdown(samples, rounds, with_earlier):
    columns = ["tutti"] + [EARLIER] * with_earlier + LIBRARIES[1:]
    titles = ["Tutti µs"] + ["earlier Tutti µs"] * with_earlier + ["Open MPI µs", "Gloo µs"]
    lines = [f"Microseconds of one collective (float32 sum, out of place), median of {rounds} interleaved rounds.",
             "The last column is the best peer's time over Tutti's: above 1, Tutti is faster.", ""]
    for collective, ranks in sorted({(c.collective, c.ranks) for c in samples},
                                    key=lambda table: (COLLECTIVES.index(table[0]), table[1])):
        lines += [f"### {collective}, {ranks} ranks", "",
                  f"| size | {' | '.join(titles)} | best peer / Tutti |", "|---:" * (len(titles) + 2) + "|"]
        for cell in sorted(c for c in samples if (c.collective, c.ranks) == (collective, ranks)):
            medians = {name: statistics.median(values) for name, values in samples[cell].items()}
            lines.append("| " + " | ".join([size_text(cell.bytes)] + table_row(medians, columns)) + " |")
        lines.append("")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="the build folder")
    parser.add_argument("--earlier", type=pathlib.Path, metavar="FOLDER",
                        help="the build folder of an earlier Tutti, which is measured beside this one")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--min", type=size_bytes, default=8, help="smallest size, for example 8 or 4K (default 8)")
    parser.add_argument("--max", type=size_bytes, default=64 << 20, help="largest size (default 64M)")
    parser.add_argument("--factor", type=int, default=8, help="from one size to the next (default 8)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each library (default 5)")
    parser.add_argument("--iterations", type=int, help="calls of a batch (default 200 up to 64 KiB, 10 above)")
    parser.add_argument("--tutti-args", type=shlex.split, default=[], help="further arguments of tutti bench")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="also write the tables to FILE")
    return parser.parse_args()


def main():
    args = parse_arguments()
    try:
        text = markdown(measure_all(args), args.rounds, args.earlier is not None)
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        sys.exit(str(failure))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
