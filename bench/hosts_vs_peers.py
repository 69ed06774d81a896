#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Tutti's collectives between two hosts with those of Open MPI (btl tcp) and Gloo.

The hosts are two network namespaces of this machine, joined by a pair of veth devices. Tutti, Open MPI and Gloo run
between them in the same rounds. Each round runs every library once, in an order that rotates from round to round. A
figure is the median over the rounds.

The floor of a call is the one-way latency of a bare ping-pong that polls, plus the bytes that one host must send over
the rate of iperf3 with one stream. Where both hosts send, iperf3 also sends both ways. Needs root and iperf3.
"""

import collections
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

import net
import peers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import hosts as namespaces  # noqa: E402

COLLECTIVES = ["all_reduce", "all_gather", "broadcast"]
HOSTS = ["10.213.0.1", "10.213.0.2"]  # a host is named like its address, as mpirun wants it
DEVICE = "rail0"
# smallest bytes, largest bytes, iterations of a batch
BANDS = [(0, 64 << 10, 200), ((64 << 10) + 1, 4 << 20, 20), ((4 << 20) + 1, 1 << 62, 5)]
BATCHES = 5


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


class Libraries:
    """Runs the libraries; measure() returns the microseconds by size of one of them."""

    def __init__(self, args, folder):
        self.args = args
        self.folder = folder

    def measure(self, library, collective, ranks, sizes, iterations):
        program = str(peers.program(self.args, library))
        span = peers.range_arguments(self.args, sizes, iterations)
        if library == "openmpi":
            return peers.times_of_peer(self.run([self.mpirun(program, collective, ranks, span)])[0])
        if library == "gloo":
            return peers.times_of_peer(self.run(self.gloo(program, collective, ranks, span))[0])
        file = pathlib.Path(self.folder) / "tutti.json"
        self.run(self.tutti(program, collective, ranks, span, file))
        return peers.times_of_tutti(file)

    def mpirun(self, program, collective, ranks, span):
        on_host = ",".join(f"{host}:{ranks // 2}" for host in HOSTS)
        this = shlex.join([sys.executable, str(pathlib.Path(__file__).resolve()), "--agent"])
        launcher = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", this,
                    "--mca", "btl", self.args.mpi_btl, "--mca", "btl_tcp_if_include", DEVICE,
                    "--mca", "oob_tcp_if_include", DEVICE, "--oversubscribe", "--host", on_host, "-np", str(ranks)]
        return named(HOSTS[0], launcher + [program, collective, "--batches", str(BATCHES), *span])

    def gloo(self, program, collective, ranks, span):
        store = tempfile.mkdtemp(dir=self.folder)
        return [namespaces.within(host_of(rank, ranks), program, collective, "--ranks", str(ranks), "--rank",
                                  str(rank), "--address", host_of(rank, ranks), "--store", store, "--batches",
                                  str(BATCHES), *span) for rank in range(ranks)]

    def tutti(self, program, collective, ranks, span, file):
        commands = []
        for rank in range(ranks):
            host = host_of(rank, ranks)
            command = [program, "bench", collective, "--ranks", str(ranks), "--rank", str(rank), "--set",
                       f"host={host}", "--set", f"settings.net.socket.interface=[={DEVICE}]", "--repeat", str(BATCHES),
                       "--in-place", "only" if collective == "broadcast" else "no", *span, *self.args.tutti_args]
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


def markdown(args, floor):
    with tempfile.TemporaryDirectory() as folder:
        libraries = Libraries(args, folder)
        samples = peers.measure_rounds(args, peers.libraries(args), BANDS, libraries.measure, floor.measure)
    lines = [f"Microseconds of one collective (float32 sum), median of {args.rounds} interleaved rounds. "
             f"Bare network: {floor.median('us'):.2f} µs for 8 B one way; iperf3: {floor.median('one_way'):.2f} GB/s "
             f"one way, {floor.median('both_ways'):.2f} GB/s each way where both hosts send.", ""]
    for collective, ranks in ((c, n) for n in args.ranks for c in args.collectives):
        lines += [f"**{collective}, 2 x {ranks // 2} ranks**", "",
                  *peers.table(args, samples, collective, ranks, floor.us)]
    return "\n".join(lines)


def parse_arguments():
    parser = peers.parser_of(__doc__, COLLECTIVES, rounds=3)
    parser.add_argument("--mtu", type=int, default=1500, help="of the link (default 1500)")
    parser.add_argument("--mpi-btl", default="tcp,self", help="Open MPI's transports (default tcp,self)")
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
    peers.report(args, lambda: markdown(args, floor))


if __name__ == "__main__":
    main()
