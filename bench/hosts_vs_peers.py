#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Tutti's collectives between hosts with those of Open MPI (btl tcp) and Gloo.

The hosts are network namespaces of this machine. A pair of veth devices joins two hosts, and a bridge joins more hosts.
With --gbit, token buckets (`tc ... tbf`) limit each link in both directions. Tutti, Open MPI and Gloo run between the
hosts in the same rounds. Each round runs every library once, in an order that rotates from round to round. A figure is
the median over the rounds. A batch holds as many calls as take 20 ms. A run that takes longer than --limit is ended;
its cells stay empty in this round.

The floor of a call is the one-way latency of a bare ping-pong that polls, plus the bytes that one host must send or
receive over the rate of iperf3 with one stream. Where all hosts send, every host sends to the next host at the same
time, and the slowest stream counts. Needs root, iperf3, and tc (iproute2) with --gbit.
"""

import collections
import concurrent.futures
import os
import pathlib
import secrets
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types

import net
import peers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import hosts as namespaces  # noqa: E402

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
DEVICE = "rail0"
BANDS = [(0, 1 << 62, None)]
BATCHES = 5


def make_hosts(args):
    hosts = namespaces.make_network(args.hosts, mtu=args.mtu, gbit=args.gbit)
    if args.congestion:
        for host in hosts:
            set_congestion(host, args.congestion)
    return hosts


def set_congestion(host, name):
    command = namespaces.within(host, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={name}")
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"The congestion control {name} is not to be had: load the kernel's module tcp_{name}, and add the "
                 "name to net.ipv4.tcp_allowed_congestion_control of this machine")


def named(host, command):
    """The command within a host, which also gets the host's name."""
    text = f"hostname {host}; exec {shlex.join(command)}"
    return namespaces.within(host, "unshare", "--uts", "sh", "-c", text)


def agent(host, words):
    """In the place of ssh for mpirun."""
    text = f"hostname {host}; exec {' '.join(words)}"
    command = namespaces.within(host, "unshare", "--uts", "sh", "-c", text)
    os.execvp(command[0], command)


class OutOfTime(Exception):
    pass


class Libraries:
    """Runs the libraries; measure() returns the microseconds by size of one of them."""

    def __init__(self, args, hosts, folder):
        self.args = args
        self.hosts = hosts
        self.folder = folder

    def host_of(self, rank, ranks):
        return self.hosts[len(self.hosts) * rank // ranks]

    def measure(self, library, collective, ranks, sizes, iterations):
        try:
            return self.times(library, collective, ranks, sizes, iterations)
        except OutOfTime:
            print(f"{library} took longer than {self.args.limit} s for {collective} of {ranks} ranks", file=sys.stderr)
            return {}

    def times(self, library, collective, ranks, sizes, iterations):
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
        on_host = ",".join(f"{host}:{ranks // len(self.hosts)}" for host in self.hosts)
        this = shlex.join([sys.executable, str(pathlib.Path(__file__).resolve()), "--agent"])
        # mpirun knows the ranks of each host alone, not that all hosts share the processors of this machine.
        yields = "1" if ranks > os.cpu_count() else "0"
        launcher = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", this,
                    "--mca", "rtc_hwloc_vmhole", "none",
                    "--mca", "mpi_yield_when_idle", yields,
                    "--mca", "btl", self.args.mpi_btl, "--mca", "btl_tcp_if_include", DEVICE,
                    "--mca", "oob_tcp_if_include", DEVICE, "--oversubscribe", "--host", on_host, "-np", str(ranks)]
        return named(self.hosts[0], launcher + [program, collective, "--batches", str(BATCHES), *span])

    def gloo(self, program, collective, ranks, span):
        store = tempfile.mkdtemp(dir=self.folder)
        return [namespaces.within(host, program, collective, "--ranks", str(ranks), "--rank", str(rank), "--address",
                                  host, "--store", store, "--batches", str(BATCHES), *span)
                for rank, host in enumerate(self.host_of(rank, ranks) for rank in range(ranks))]

    def tutti(self, program, collective, ranks, span, file):
        commands = []
        for rank in range(ranks):
            host = self.host_of(rank, ranks)
            command = [program, "bench", collective, "--ranks", str(ranks), "--rank", str(rank), "--set",
                       f"host={host}", "--set", f"settings.net.socket.interface=[={DEVICE}]", "--repeat", str(BATCHES),
                       "--in-place", "only" if collective == "broadcast" else "no", *span, *self.args.tutti_args]
            commands.append(namespaces.within(host, *command, *(["--json", str(file)] if rank == 0 else [])))
        return commands

    def run(self, commands):
        """The outputs of commands that run at the same time. RuntimeError if one fails, OutOfTime after the limit."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        environment["TUTTI_ID"] = f"{self.hosts[0]}:41999:{secrets.token_hex(16)}"
        limit = ["timeout", "--kill-after", "5", str(self.args.limit)]  # mpirun ends its ranks
        start = time.monotonic()
        sides = [net.Side(limit + command, environment) for command in commands]
        try:
            return [side.finish()[0] for side in sides]
        except RuntimeError:
            if time.monotonic() - start > self.args.limit:
                raise OutOfTime from None
            raise
        finally:
            for side in sides:
                side.end()


class Floor:
    """The bare network: one-way latency of 8 bytes, and iperf3's rate of a stream, alone and where all hosts send."""

    def __init__(self, args, hosts):
        self.hosts = hosts
        self.runners = [net.Runner(types.SimpleNamespace(port=21000, netns=[host, hosts[number - 1]], cpus=None,
                                                         build=args.build, seconds=1, host=host, streams=1))
                        for number, host in enumerate(hosts)]
        self.samples = collections.defaultdict(list)

    def measure(self):
        def stream(runner):
            return net.iperf3(runner, net.Figure("one_way", 0, 1)).value

        self.samples["us"].append(net.ping_pong(self.runners[0], net.Figure("latency", 8, 1), None).value)
        self.samples["one"].append(stream(self.runners[0]))
        with concurrent.futures.ThreadPoolExecutor(len(self.runners)) as pool:
            self.samples["all"].append(min(pool.map(stream, self.runners)))

    def median(self, name):
        return statistics.median(self.samples[name])

    def us(self, cell):
        hosts = len(self.hosts)
        others = (hosts - 1) / hosts
        blocks = {"all_reduce": 2 * others, "broadcast": 1, "all_to_all": others * cell.ranks / hosts}
        carried = cell.bytes * blocks.get(cell.collective, others)
        rate = self.median("one" if cell.collective == "broadcast" else "all")
        return self.median("us") + carried / (rate * 1e3)


def markdown(args, hosts):
    floor = Floor(args, hosts)
    with tempfile.TemporaryDirectory() as folder:
        libraries = Libraries(args, hosts, folder)
        samples = peers.measure_rounds(args, peers.libraries(args), BANDS, libraries.measure, floor.measure)
    lines = [f"Microseconds of one collective (float32 sum), median of {args.rounds} interleaved rounds. "
             f"Bare network: {floor.median('us'):.2f} µs for 8 B one way; iperf3: {floor.median('one'):.2f} GB/s "
             f"of one stream, {floor.median('all'):.2f} GB/s of each stream where every host sends to the next.", ""]
    for collective, ranks in ((c, n) for n in args.ranks for c in args.collectives):
        lines += [f"**{collective}, {args.hosts} x {ranks // args.hosts} ranks**", "",
                  *peers.table(args, samples, collective, ranks, floor.us)]
    return "\n".join(lines)


def parse_arguments():
    parser = peers.parser_of(__doc__, COLLECTIVES, rounds=3)
    parser.add_argument("--hosts", type=int, default=2, help="number of hosts (default 2)")
    parser.add_argument("--gbit", type=float, default=0, help="Gbit/s of each link and direction (default: no limit)")
    parser.add_argument("--congestion", metavar="NAME", help="TCP's congestion control of the hosts (default: as here)")
    parser.add_argument("--limit", type=int, default=60, metavar="SECONDS", help="of one run (default 60)")
    parser.add_argument("--mtu", type=int, default=1500, help="of the link (default 1500)")
    parser.add_argument("--mpi-btl", default="tcp,self", help="Open MPI's transports (default tcp,self)")
    return parser.parse_args()


def main():
    if sys.argv[1:2] == ["--agent"]:
        agent(sys.argv[2], sys.argv[3:])
    args = parse_arguments()
    if shutil.which("iperf3") is None:
        sys.exit("iperf3 is missing; install the package iperf3")
    if args.hosts < 2 or any(ranks % args.hosts for ranks in args.ranks):
        sys.exit("--ranks must be a multiple of --hosts (2 or more): each host has equally many ranks")
    namespaces.isolate()
    namespaces.require_links()
    hosts = make_hosts(args)
    peers.report(args, lambda: markdown(args, hosts))


if __name__ == "__main__":
    main()
