#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted times beside measured times of collectives between hosts.

The hosts are network namespaces of this machine. A pair of veth devices joins two hosts, and a bridge joins more hosts.
Each host has one processor; hosts beyond the number of processors share them in turn. Token buckets (`tc ... tbf`)
limit each link. A topology file for jobs and `tutti simulate` states the processor and the rate. `tutti tune --figures`
measures the links first, before they are limited, and the memory; --built-in-figures leaves the built-in figures.

Each round runs every candidate once per cell; a cell is a collective, a number of ranks, a link and a size. The figure
of a candidate is the median over the rounds. The last column of the tables divides the time of the choice by that of
the best candidate: one half of the rounds finds the best candidate, and the other half compares the two, in turn.

The program prints the prediction, the measurement and the error of each cell's choice, the errors over all candidates,
and in how many cells the choice is within 10 % of the best candidate. Calls follow each other, as in
`tutti bench`, or have a barrier before them (--barrier). Needs root and tc (iproute2).
"""

import argparse
import collections
import json
import os
import pathlib
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile

import net
from net import size_bytes, size_text
from peers import microseconds

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import hosts as namespaces  # noqa: E402

DEVICE = "rail0"
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
NEAR = 1.10  # a choice is good if the best candidate is faster by less than this factor
BATCHES = 3

Cell = collections.namedtuple("Cell", "gbit collective ranks_here bytes")
Time = collections.namedtuple("Time", "predicted measured")


class Jobs:
    def __init__(self, args, hosts, folder):
        self.args = args
        self.hosts = hosts
        self.tutti = str(args.build / "bin" / "tutti")
        self.topology = pathlib.Path(folder) / "machine.yaml"
        self.output = pathlib.Path(folder) / "out.json"
        self.figures = pathlib.Path(folder) / "figures.yaml"
        self.interface = ["--set", f"settings.net.socket.interface=[={DEVICE}]"]

    def on_host(self, host, *command):
        """The command line that runs a command on a host and its processor."""
        number = self.hosts.index(host) % os.cpu_count()
        return namespaces.within(host, "taskset", "--cpu-list", str(number), *command)

    def describe(self, gbit):
        """Writes the topology of a host: what a job discovers, with the rate of the limited link."""
        shown = subprocess.run(namespaces.within(self.hosts[0], self.tutti, "topo", "show", "--export", "yaml",
                                                 *self.interface), capture_output=True, text=True, check=True,
                               env=environment()).stdout
        lines = []
        numa_nodes = sum(line.strip().startswith("affinity:") for line in shown.splitlines())
        share = min(1, os.cpu_count() / len(self.hosts)) / numa_nodes
        for line in shown.splitlines():
            if f"name: {DEVICE}," in line:
                fields = [f for f in line.split("{")[1].split("}")[0].split(", ") if not f.startswith("speed")]
                line = line.split("{")[0] + "{" + ", ".join(fields + [f"speed: {gbit * 1000:g}"]) + "}"
            if line.strip().startswith("affinity:"):
                line = line.split(":")[0] + f': "00000001"\n    processors: {share:g}'
            lines.append(line)
        self.topology.write_text("\n".join(lines) + "\n")

    def calibrate(self):
        """Measures the network between hosts that share no processor, and the memory between two ranks of this machine.
        Writes the file of hardware figures, and returns the figures as text."""
        hosts = self.hosts[:os.cpu_count()]
        self.figures.unlink(missing_ok=True)
        launched = environment() | {"WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": hosts[0], "MASTER_PORT": "41990",
                                    "TUTTI_ID_SECRET": secrets.token_hex(16)}
        commands = [self.on_host(host, self.tutti, "tune", "--figures", *self.interface, *self.settings(), "--set",
                                 f"host={host}", "--out", str(self.figures)) for host in hosts]
        run([net.Side(command, launched | {"RANK": str(rank)}) for rank, command in enumerate(commands)])
        memory = self.figures.with_name("memory.yaml")
        here = [self.tutti, "tune", "--figures", "--ranks", "2", *self.settings(), "--out", str(memory)]
        run([net.Side(here, environment())])
        lines = memory.read_text().splitlines()
        text = self.figures.read_text() + "\n".join(lines[lines.index("memory:"):]) + "\n"
        self.figures.write_text(text)
        return ", ".join(part.split("}")[0] for part in text.split("{")[1:])

    def predict(self, collective, ranks_here, sizes):
        """{bytes: candidates} of `tutti simulate`; the chosen candidate is first."""
        command = [self.tutti, "simulate", collective, "--topology", str(self.topology), "--nodes",
                   str(len(self.hosts)), "--ranks", str(ranks_here), "--json", "-", *self.range(sizes),
                   *self.settings()]
        shown = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
        if shown.returncode != 0:
            raise RuntimeError(shown.stderr)
        return {row["bytes"]: [c for c in row["candidates"] if "excluded" not in c]
                for row in json.loads(shown.stdout)["results"]}

    def measure(self, collective, ranks_here, sizes, candidate):
        """{bytes: Time} of a job in which the candidate runs each call."""
        algorithm = candidate["algorithm"] + (f"/{candidate['variant']}" if candidate["variant"] else "")
        commands = []
        ranks = len(self.hosts) * ranks_here
        for rank in range(ranks):
            host = self.hosts[rank // ranks_here]
            command = [self.tutti, "bench", collective, "--ranks", str(ranks), "--rank", str(rank),
                       "--set", f"host={host}", "--set", f"algorithm={algorithm}",
                       "--set", f"protocol={candidate['protocol']}", "--set", f"topology.file={self.topology}",
                       *self.interface, *self.settings(), *self.range(sizes), "--repeat", str(BATCHES),
                       "--in-place", "only" if collective == "broadcast" else "no",
                       *(["--barrier"] if collective in self.args.barrier else [])]
            output = ["--json", str(self.output)] if rank == 0 else []
            commands.append(self.on_host(host, *command, *output))
        with_id = environment() | {"TUTTI_ID": f"{self.hosts[0]}:41999:{secrets.token_hex(16)}"}
        run([net.Side(command, with_id) for command in commands])
        key = "in_place_time_us" if collective == "broadcast" else "time_us"
        return {row["bytes"]: Time(row["predicted_us"], row[key])
                for row in json.loads(self.output.read_text())["results"]}

    def settings(self):
        figures = [f"hardware.file={self.figures}"] if self.figures.exists() else []
        return [word for setting in self.args.set + figures for word in ("--set", setting)]

    def range(self, sizes):
        return ["--min", str(sizes[0]), "--max", str(sizes[-1]), "--factor", str(self.args.factor)]


def run(sides):
    """Waits for processes that run at the same time. RuntimeError if one fails."""
    try:
        for side in sides:
            side.finish()
    finally:
        for side in sides:
            side.end()


def environment():
    """This program's variables without settings of Tutti."""
    return {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}


def sizes_of(args, collective, ranks):
    size = max(args.min, 4 * ranks) if collective not in ("all_reduce", "broadcast") else args.min
    sizes = []
    while size <= args.max:
        sizes.append(size)
        size *= args.factor
    return sizes


class Cells:
    """Predictions and measurements of all cells."""

    def __init__(self):
        self.figures = "built in"
        self.chosen = {}  # {cell: name}
        self.predicted = collections.defaultdict(dict)  # {cell: {name: µs}}
        self.measured = collections.defaultdict(lambda: collections.defaultdict(list))  # {cell: {name: [µs]}}

    def median(self, cell, name, rounds=slice(None)):
        return statistics.median(self.measured[cell][name][rounds])

    def best(self, cell, rounds=slice(None)):
        return min(self.measured[cell], key=lambda name: self.median(cell, name, rounds))

    def choice_over_best(self, cell):
        """The time of the choice over that of the best candidate. One half of the rounds finds the best candidate, and
        the other half compares, in turn. So no candidate is the best by the chance of its own runs."""
        halves = (slice(0, None, 2), slice(1, None, 2))
        if len(self.measured[cell][self.chosen[cell]]) < 2:
            halves = (slice(None), slice(None))
        return statistics.geometric_mean(self.median(cell, self.chosen[cell], compare) /
                                         self.median(cell, self.best(cell, find), compare)
                                         for find, compare in (halves, halves[::-1]))


def run_round(jobs, args, gbit, cells):
    for ranks_here in args.ranks:
        for collective in args.collectives:
            sizes = sizes_of(args, collective, len(jobs.hosts) * ranks_here)
            predictions = jobs.predict(collective, ranks_here, sizes)
            candidates = {c["name"]: c for row in predictions.values() for c in row}
            for size, row in predictions.items():
                cell = Cell(gbit, collective, ranks_here, size)
                cells.chosen[cell] = row[0]["name"]
                cells.predicted[cell] = {c["name"]: c["predicted_us"] for c in row}
            for name, candidate in candidates.items():
                for size, time in jobs.measure(collective, ranks_here, sizes, candidate).items():
                    cell = Cell(gbit, collective, ranks_here, size)
                    cells.measured[cell][name].append(time.measured)
                    if abs(time.predicted - cells.predicted[cell][name]) > 1e-6 * time.predicted:
                        raise RuntimeError(f"{cell}, {name}: the job predicts {time.predicted} µs, the dry run "
                                           f"{cells.predicted[cell][name]} µs")


def error_text(predicted, measured):
    return f"{100 * (predicted - measured) / measured:+.0f} %"


def table(cells, keep):
    lines = ["| size | choice | predicted µs | measured µs | error | best | measured µs | choice / best |",
             "|---:|---|---:|---:|---:|---|---:|---:|"]
    for cell in sorted(c for c in cells.chosen if keep(c)):
        choice, best = cells.chosen[cell], cells.best(cell)
        predicted, measured = cells.predicted[cell][choice], cells.median(cell, choice)
        lines.append(f"| {size_text(cell.bytes)} | {choice} | {microseconds(predicted)} | {microseconds(measured)} | "
                     f"{error_text(predicted, measured)} | {best} | {microseconds(cells.median(cell, best))} | "
                     f"{cells.choice_over_best(cell):.2f} |")
    return lines + [""]


def details(cells, keep):
    """All candidates of the cells."""
    lines = ["| size | candidate | predicted µs | measured µs | error |", "|---:|---|---:|---:|---:|"]
    for cell in sorted(c for c in cells.chosen if keep(c)):
        for name, predicted in cells.predicted[cell].items():
            measured = cells.median(cell, name)
            lines.append(f"| {size_text(cell.bytes)} | {name} | {microseconds(predicted)} | {microseconds(measured)} | "
                         f"{error_text(predicted, measured)} |")
    return lines + [""]


def summary(cells):
    def errors(pairs):
        values = [abs(predicted - measured) / measured for predicted, measured in pairs]
        return f"median {100 * statistics.median(values):.0f} %, largest {100 * max(values):.0f} %"

    of_choices = [(cells.predicted[c][n], cells.median(c, n)) for c, n in cells.chosen.items()]
    of_all = [(us, cells.median(c, n)) for c, row in cells.predicted.items() for n, us in row.items()]
    good = sum(cells.choice_over_best(cell) <= NEAR for cell in cells.chosen)
    return [f"Figures of the network: {cells.figures}. Error of the prediction: "
            f"{errors(of_choices)} for the choices of {len(of_choices)} cells; {errors(of_all)} "
            f"for all {len(of_all)} candidates. The choice is within 10 % of the best candidate in {good} of "
            f"{len(cells.chosen)} cells ({100 * good / len(cells.chosen):.0f} %)."]


def report(args, cells):
    lines = []
    for gbit in args.gbit:
        for ranks_here in args.ranks:
            for collective in args.collectives:
                keep = lambda c, want=(gbit, collective, ranks_here): c[:3] == want  # noqa: E731
                title = f"**{collective}, {args.hosts} × {ranks_here} ranks, {gbit:g} Gbit/s**"
                lines += [title, "", *table(cells, keep)]
                lines += details(cells, keep) if args.all else []
    return "\n".join(lines + summary(cells))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="the build folder")
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    parser.add_argument("--hosts", type=int, default=2, help="how many hosts (default 2)")
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2], help="ranks of each host (default 1 2)")
    parser.add_argument("--gbit", nargs="+", type=float, default=[10, 1], help="rates of the link (default 10 1)")
    parser.add_argument("--min", type=size_bytes, default=8, help="smallest size, for example 8 or 4K (default 8)")
    parser.add_argument("--max", type=size_bytes, default=16 << 20, help="largest size (default 16M)")
    parser.add_argument("--factor", type=int, default=16, help="from one size to the next (default 16)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each candidate (default 3)")
    parser.add_argument("--barrier", nargs="+", choices=COLLECTIVES, default=[],
                        help="collectives with a barrier before each call (`tutti bench --barrier`)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all jobs")
    parser.add_argument("--built-in-figures", action="store_true", help="do not measure the network first")
    parser.add_argument("--all", action="store_true", help="also print all candidates")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="also write the tables to FILE")
    args = parser.parse_args()
    if os.cpu_count() < 2:
        parser.error("needs two processors: the calibration is between two hosts with a processor each")
    if args.hosts < 2 or (args.hosts > os.cpu_count() and args.hosts % os.cpu_count() != 0):
        parser.error(f"--hosts: write a number from 2 on that is at most {os.cpu_count()} or a multiple of it")
    return args


def main():
    args = parse_arguments()
    if shutil.which("tc") is None:
        sys.exit("tc is missing; install the package iproute2")
    namespaces.isolate()
    namespaces.require_links()
    hosts = namespaces.make_network(args.hosts)
    cells = Cells()
    try:
        with tempfile.TemporaryDirectory() as folder:
            jobs = Jobs(args, hosts, folder)
            if not args.built_in_figures:
                cells.figures = jobs.calibrate()
            for turn in range(args.rounds):
                for gbit in args.gbit:
                    print(f"round {turn + 1} of {args.rounds}: {gbit:g} Gbit/s", file=sys.stderr)
                    for host in hosts:
                        namespaces.limit_rate(host, DEVICE, gbit)
                    jobs.describe(gbit)
                    run_round(jobs, args, gbit, cells)
    except (RuntimeError, subprocess.SubprocessError) as failure:
        sys.exit(str(failure))
    text = report(args, cells)
    print(text)
    if args.markdown:
        args.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
