#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Tutti's collectives between two hosts with those of Open MPI (btl tcp) and Gloo.

The hosts are two network namespaces of this machine, joined by a pair of veth devices. Tutti, Open MPI and Gloo run
between them in the same rounds. Each round runs every library once, in an order that rotates from round to round. A
figure is the median over the rounds.

The floor of a call is the one-way latency of a bare ping-pong that polls, plus the bytes that one host must send over
the rate of iperf3 with one stream. Where both hosts send, iperf3 also sends both ways. Needs root and iperf3.
"""

import argparse
import collections
import json
import os
import pathlib
import secrets
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import types

import host_vs_peers as one_host
import net

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import hosts as namespaces  # noqa: E402

COLLECTIVES = ["all_reduce", "all_gather", "broadcast"]
LIBRARIES = ["tutti", "openmpi", "gloo"]
EARLIER = one_host.EARLIER
HOSTS = ["10.213.0.1", "10.213.0.2"]  # a host is named like its address, as mpirun wants it
DEVICE = "rail0"
# smallest bytes, largest bytes, iterations of a batch
BANDS = [(0, 64 << 10, 200), ((64 << 10) + 1, 4 << 20, 20), ((4 << 20) + 1, 1 << 62, 5)]
BATCHES = 5
Cell = one_host.Cell


def make_hosts(cleanup, mtu):
    for host in HOSTS:
        namespaces.add_host(host, cleanup)
    namespaces.ip("link", "add", DEVICE, "netns", HOSTS[0], "type", "veth", "peer", DEVICE, "netns", HOSTS[1])
    for number, host in enumerate(HOSTS, 1):
        namespaces.ip("-n", host, "link", "set", DEVICE, "mtu", str(mtu))
        namespaces.set_address(host, number, DEVICE, 0)


def named(host, command):
    """The command within a host, which also gets the host's name."""
    text = f"hostname {host}; exec {shlex.join(command)}"
    return namespaces.within(host, "unshare", "--uts", "sh", "-c", text)


def agent(host, words):
    """In the place of ssh for mpirun."""
    text = f"hostname {host}; exec {' '.join(words)}"
    command = namespaces.within(host, "unshare", "--uts", "sh", "-c", text)
    os.execvp(command[0], command)


def host_of(rank, ranks):
    return HOSTS[2 * rank // ranks]


class Library:
    """Runs one library; measure() returns the microseconds by size."""

    def __init__(self, args, name):
        self.args = args
        self.name = name
        build = args.earlier if name == EARLIER else args.build
        self.program = str(build / "bin" / {"openmpi": "mpi_peer", "gloo": "gloo_peer"}.get(name, "tutti"))

    def measure(self, cell_sizes, collective, ranks, iterations, folder):
        sizes = ["--min", str(cell_sizes[0]), "--max", str(cell_sizes[-1]), "--factor", str(self.args.factor),
                 "--iters", str(iterations)]
        if self.name == "openmpi":
            return self.rows(self.run([self.mpirun(collective, ranks) + sizes])[0])
        if self.name == "gloo":
            return self.rows(self.run(self.gloo(collective, ranks, sizes, folder))[0])
        file = pathlib.Path(folder) / "tutti.json"
        self.run(self.tutti(collective, ranks, sizes, file))
        results = json.loads(file.read_text())
        # The peers broadcast in place only; their root copies nothing.
        time = "in_place_time_us" if results["collective"] == "broadcast" else "time_us"
        return {row["bytes"]: row[time] for row in results["results"]}

    @staticmethod
    def rows(output):
        return {row["bytes"]: row["us"] for row in map(json.loads, output.splitlines())}

    def mpirun(self, collective, ranks):
        on_host = ",".join(f"{host}:{ranks // 2}" for host in HOSTS)
        this = shlex.join([sys.executable, str(pathlib.Path(__file__).resolve()), "--agent"])
        launcher = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", this,
                    "--mca", "btl", self.args.mpi_btl, "--mca", "btl_tcp_if_include", DEVICE,
                    "--mca", "oob_tcp_if_include", DEVICE, "--oversubscribe", "--host", on_host, "-np", str(ranks)]
        return named(HOSTS[0], launcher + [self.program, collective, "--batches", str(BATCHES)])

    def gloo(self, collective, ranks, sizes, folder):
        store = tempfile.mkdtemp(dir=folder)
        return [namespaces.within(host_of(rank, ranks), self.program, collective, "--ranks", str(ranks), "--rank",
                                  str(rank), "--address", host_of(rank, ranks), "--store", store, "--batches",
                                  str(BATCHES), *sizes) for rank in range(ranks)]

    def tutti(self, collective, ranks, sizes, file):
        commands = []
        for rank in range(ranks):
            host = host_of(rank, ranks)
            command = [self.program, "bench", collective, "--ranks", str(ranks), "--rank", str(rank), "--set",
                       f"host={host}", "--set", f"settings.net.socket.interface=[={DEVICE}]", "--repeat", str(BATCHES),
                       "--in-place", "only" if collective == "broadcast" else "no", *sizes, *self.args.tutti_args]
            commands.append(namespaces.within(host, *command, *(["--json", str(file)] if rank == 0 else [])))
        return commands

    def run(self, commands):
        """The outputs of commands that run at the same time. RuntimeError if one fails."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        environment["TUTTI_ID"] = f"{HOSTS[0]}:41999:{secrets.token_hex(16)}"
        sides = [net.Side(command, environment) for command in commands]
        try:
            return [side.finish()[0] for side in sides]
        finally:
            for side in sides:
                side.end()


class Floor:
    """The bare network: one-way latency of 8 bytes, and iperf3's rate per direction with one stream."""

    def __init__(self, args):
        self.runner = net.Runner(types.SimpleNamespace(port=21000, netns=HOSTS, cpus=None, build=args.build,
                                                       seconds=1, host=HOSTS[0], streams=1))
        self.samples = collections.defaultdict(list)

    def measure(self):
        self.samples["us"].append(net.ping_pong(self.runner, net.Figure("latency", 8, 1), None).value)
        self.samples["one_way"].append(net.iperf3(self.runner, net.Figure("one_way", 0, 1)).value)
        self.samples["both_ways"].append(net.iperf3(self.runner, net.Figure("both_ways", 0, 1)).value / 2)

    def median(self, name):
        return statistics.median(self.samples[name])

    def us(self, cell):
        sent = cell.bytes / 2 if cell.collective == "all_gather" else cell.bytes
        rate = self.median("one_way" if cell.collective == "broadcast" else "both_ways")
        return self.median("us") + sent / (rate * 1e3)


def measure_all(args, floor):
    """{cell: {library: [microseconds of each round]}}"""
    samples = collections.defaultdict(lambda: collections.defaultdict(list))
    libraries = [Library(args, name) for name in args.libraries + ([EARLIER] if args.earlier else [])]
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(args.rounds):
            floor.measure()
            order = libraries[turn % len(libraries):] + libraries[:turn % len(libraries)]
            for collective, ranks in ((c, n) for n in args.ranks for c in args.collectives):
                print(f"round {turn + 1} of {args.rounds}: {collective}, {ranks} ranks", file=sys.stderr)
                for lowest, highest, iterations in BANDS:
                    sizes = [s for s in one_host.sizes_of(args, collective, ranks) if lowest <= s <= highest]
                    for library in order if sizes else []:
                        for size, us in library.measure(sizes, collective, ranks, iterations, folder).items():
                            samples[Cell(collective, ranks, size)][library.name].append(us)
    return samples


def markdown(args, samples, floor):
    columns = ["tutti"] + [EARLIER] * (args.earlier is not None) + [n for n in LIBRARIES[1:] if n in args.libraries]
    titles = {"tutti": "Tutti", EARLIER: "earlier Tutti", "openmpi": "Open MPI", "gloo": "Gloo"}
    lines = [f"Microseconds of one collective (float32 sum), median of {args.rounds} interleaved rounds. "
             f"Bare network: {floor.median('us'):.2f} µs for 8 B one way; iperf3: {floor.median('one_way'):.2f} GB/s "
             f"one way, {floor.median('both_ways'):.2f} GB/s each way where both hosts send.", ""]
    for collective, ranks in ((c, n) for n in args.ranks for c in args.collectives):
        lines += [f"**{collective}, 2 x {ranks // 2} ranks**", "",
                  f"| size | {' | '.join(titles[name] for name in columns)} | floor | best peer / Tutti |",
                  "|---:" * (len(columns) + 3) + "|"]
        for cell in sorted(c for c in samples if (c.collective, c.ranks) == (collective, ranks)):
            medians = {name: statistics.median(values) for name, values in samples[cell].items()}
            *figures, ratio = one_host.table_row(medians, columns)
            row = [one_host.size_text(cell.bytes), *figures, one_host.microseconds(floor.us(cell)), ratio]
            lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="the build folder")
    parser.add_argument("--earlier", type=pathlib.Path, metavar="FOLDER",
                        help="the build folder of an earlier Tutti, which is measured beside this one")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4], help="half of them on each host")
    parser.add_argument("--min", type=one_host.size_bytes, default=8, help="smallest size, for example 8 or 4K")
    parser.add_argument("--max", type=one_host.size_bytes, default=64 << 20, help="largest size (default 64M)")
    parser.add_argument("--factor", type=int, default=8, help="from one size to the next (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each library (default 3)")
    parser.add_argument("--mtu", type=int, default=1500, help="of the link (default 1500)")
    parser.add_argument("--mpi-btl", default="tcp,self", help="Open MPI's transports (default tcp,self)")
    parser.add_argument("--tutti-args", type=shlex.split, default=[], help="further arguments of tutti bench")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="also write the tables to FILE")
    return parser.parse_args()


def main():
    if sys.argv[1:2] == ["--agent"]:
        agent(sys.argv[2], sys.argv[3:])
    args = parse_arguments()
    if shutil.which("iperf3") is None:
        sys.exit("iperf3 is missing; install the package iperf3")
    if any(ranks % 2 for ranks in args.ranks):
        sys.exit("--ranks must be even: half of the ranks run on each host")
    namespaces.isolate()
    namespaces.require_links()
    make_hosts(lambda *call, **options: None, args.mtu)  # the kernel removes the hosts with the program
    floor = Floor(args)
    try:
        text = markdown(args, measure_all(args, floor), floor)
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        sys.exit(str(failure))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
