#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a network plugin with its raw peer, between two processes of this machine or of two network namespaces.

The raw peers are iperf3 and socket_ping_pong (socket), ucx_perftest (ucx), ib_write_bw and ib_send_lat (ib). In each
round both run once per figure, in turn, in an order that changes from round to round. A figure is the
median over the rounds. The ratio is the plugin's median over the raw peer's.

Variables UCX_* of the environment apply to the plugin ucx and to ucx_perftest. Over TCP, the plugin asks UCX for
reports of failures, which excludes some protocols; with --raw-args=-e, ucx_perftest asks for them, too.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 120
PORTS = 8000
Figure = collections.namedtuple("Figure", "test bytes connections")
Value = collections.namedtuple("Value", "value cpu")  # µs or GB/s; CPU µs per message or CPU seconds per GB
PACKAGES = {"iperf3": "iperf3", "ucx_perftest": "ucx-utils", "ib_write_bw": "perftest", "ib_send_lat": "perftest"}
RAW = {"socket": ("iperf3",), "ucx": ("ucx_perftest",), "ib": ("ib_write_bw", "ib_send_lat")}


def size_bytes(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1].upper() in units else int(text)


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


class Side:
    """A running process whose output goes to files, so that none of its pipes fills up."""

    def __init__(self, command, environment=None):
        self.command = command
        self.files = [tempfile.TemporaryFile("w+") for _ in range(2)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.files[0], stderr=self.files[1],
                                        env=environment)

    def text(self, index):
        self.files[index].seek(0)
        return self.files[index].read()

    def finish(self):
        """The output and the CPU seconds. RuntimeError if the process fails or takes longer than TIMEOUT_S."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
            if pid != 0:
                break
            if time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"{shlex.join(self.command)} took longer than {TIMEOUT_S} s")
            time.sleep(0.005)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        output, errors = self.text(0), self.text(1)
        if self.process.returncode != 0:
            raise RuntimeError(f"{shlex.join(self.command)} exited with {self.process.returncode}:\n"
                               f"{output[-1000:]}{errors[-1000:]}")
        return output, used.ru_utime + used.ru_stime

    def end(self):
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        for file in self.files:
            file.close()


class Runner:
    """Starts a server and a client where they belong."""

    def __init__(self, args):
        self.args = args
        self.port = args.port + random.randrange(PORTS)

    def prefix(self, index):
        command = ["ip", "netns", "exec", self.args.netns[index]] if self.args.netns else []
        return command + (["taskset", "--cpu-list", self.args.cpus[index]] if self.args.cpus else [])

    def next_port(self):
        """A new port for each run, since a recently used port may still be taken."""
        for _ in range(PORTS):
            self.port = self.args.port + (self.port + 1 - self.args.port) % PORTS
            if not self.listens(self.port, state="[0-9A-F]{2}"):
                return self.port
        raise RuntimeError(f"no port from {self.args.port} on is free")

    def listens(self, port, state="0A"):
        shown = subprocess.run(self.prefix(0) + ["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True,
                               text=True, check=True).stdout
        return re.search(rf"\d: [0-9A-F]+:{port:04X} [0-9A-F]+:[0-9A-F]+ {state} ", shown) is not None

    def run(self, server, client, port):
        """(output of the client, CPU seconds of both, output of the server)."""
        sides = [Side(self.prefix(0) + server)]
        try:
            deadline = time.monotonic() + 20
            while not self.listens(port):
                if sides[0].process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{shlex.join(server)} does not listen:\n{sides[0].text(0)}{sides[0].text(1)}")
                time.sleep(0.005)
            sides.append(Side(self.prefix(1) + client))
            output, client_cpu = sides[1].finish()
            said, server_cpu = sides[0].finish()
            return output, client_cpu + server_cpu, said
        finally:
            for side in sides:
                side.end()


def plugin_run(runner, figure, spin_us):
    args = runner.args
    port = runner.next_port()
    command = [str(args.build / "bin/net_bench"), "--network", args.network, "--device", str(args.device)]
    for setting in args.set:
        command += ["--set", setting]
    ports = [["--set", f"settings.net.ib.devices=[={name}]"] for name in args.rdma_devices] or [[], []]
    if spin_us is not None:
        command += ["--spin-us", str(spin_us)]
    client = ["--peer", f"{args.host}:{port}", "--tests", figure.test, "--sizes", str(figure.bytes), "--connections",
              str(figure.connections), "--window", str(args.window), "--seconds", str(args.seconds)]
    output, _, _ = runner.run(command + ports[0] + ["--serve", str(port)], command + ports[1] + client, port)
    row = json.loads(output)
    return Value(row["us"], row["cpu_us"]) if figure.test == "latency" else Value(row["gbs"], row["cpu_s_per_gb"])


def ping_pong(runner, figure, spin_us):
    port = runner.next_port()
    count = max(20, int(runner.args.seconds / 20e-6 / (1 + figure.bytes / 50000)))
    command = [str(runner.args.build / "bin/socket_ping_pong"), "--bytes", str(figure.bytes), "--count", str(count)]
    if spin_us is not None:
        command += ["--spin-us", str(spin_us)]
    output, cpu, _ = runner.run(command + ["--serve", str(port)], command + ["--peer", f"{runner.args.host}:{port}"],
                                port)
    return Value(json.loads(output)["us"], cpu * 1e6 / (2 * count))


def iperf3(runner, figure):
    args = runner.args
    port = runner.next_port()
    client = ["iperf3", "--client", args.host, "--port", str(port), "--parallel",
              str(figure.connections * args.streams), "--time", str(max(1, round(args.seconds))), "--json"]
    client += ["--bidir"] if figure.test == "both_ways" else []
    output, _, _ = runner.run(["iperf3", "--server", "--one-off", "--port", str(port)], client, port)
    end = json.loads(output)["end"]
    received = [end["sum_received"]] + ([end["sum_received_bidir_reverse"]] if figure.test == "both_ways" else [])
    gbs = sum(one["bits_per_second"] for one in received) / 8e9
    used = end["cpu_utilization_percent"]
    return Value(gbs, (used["host_total"] + used["remote_total"]) / 100 / gbs)


def raw_socket(runner, figure, spin_us):
    return ping_pong(runner, figure, spin_us) if figure.test == "latency" else iperf3(runner, figure)


def calibrated(runner, figure, measure):
    """Repeats `measure(count)`, which returns (value, CPU seconds, seconds), until it takes as long as asked for."""
    count = runner.counts.get(figure, 64)
    while True:
        value, cpu, seconds = measure(count)
        if seconds >= runner.args.seconds / 2 or count >= 1 << 24:
            runner.counts[figure] = count
            return value, cpu, count
        count = int(count * min(16, max(2, runner.args.seconds / max(seconds, 1e-6))))


def raw_ucx(runner, figure, _):
    """ucx_perftest has one connection and one direction; it polls always."""
    if figure.test == "both_ways" or figure.connections > 1:
        return None
    latency = figure.test == "latency"

    def measure(count):
        port = runner.next_port()
        server = ["ucx_perftest", "-p", str(port)] + runner.args.raw_args
        window = [] if latency else ["-O", str(runner.args.window)]
        client = server + [runner.args.host, "-t", "tag_lat" if latency else "tag_bw", "-s", str(figure.bytes), "-n",
                           str(count), "-w", str(max(1, count // 10)), "-f", "-v"] + window
        output, cpu, _ = runner.run(server, client, port)
        columns = [float(one) for one in output.strip().splitlines()[-1].split(",")]
        _, typical_us, _, overall_us, _, overall_mbs = columns[:6]
        seconds = overall_us * 1e-6 * count * (2 if latency else 1)
        return (typical_us if latency else overall_mbs * (1 << 20) / 1e9), cpu, seconds

    value, cpu, count = calibrated(runner, figure, measure)
    return Value(value, cpu * 1e6 / (2 * count) if latency else cpu / (figure.bytes * count * 1e-9))


def raw_ib(runner, figure, _):
    """perftest: ib_send_lat, and ib_write_bw with one queue pair per connection."""
    args = runner.args
    latency = figure.test == "latency"
    port = runner.next_port()
    message_s = figure.bytes / 5e7 + (50e-6 if latency else 0)  # of an emulated device; a real one takes less
    count = max(100, int(args.seconds / message_s))
    command = ["ib_send_lat" if latency else "ib_write_bw", "-p", str(port), "-s", str(figure.bytes), "-n", str(count),
               "-F"] + args.raw_args
    if not latency:
        command += ["-q", str(figure.connections)] + (["-b"] if figure.test == "both_ways" else [])
    devices = [["-d", name] for name in args.rdma_devices] or [[], []]
    output, cpu, _ = runner.run(command + devices[0], command + devices[1] + [args.host], port)
    rows = [line.split() for line in output.splitlines() if re.match(rf"\s*{figure.bytes}\s+\d+\s", line)]
    if not rows:
        raise RuntimeError(f"no figure in the output of {shlex.join(command)}:\n{output[-1000:]}")
    if latency:
        return Value(float(rows[-1][4]), cpu * 1e6 / (2 * count))  # bytes, count, min, max, typical
    gbs = float(rows[-1][3]) * (1 << 20) / 1e9  # bytes, count, peak, average in MiB/s
    moved = figure.bytes * count * figure.connections * (2 if figure.test == "both_ways" else 1) * 1e-9
    return Value(gbs, cpu / moved)


def figures_of(args):
    for test in args.tests:
        for size in args.sizes:
            for connections in [1] if test == "latency" else args.connections:
                yield Figure(test, size, connections)


def measure_all(args):
    """{figure: {"plugin" | "raw" | "floor": [values]}}"""
    runner = Runner(args)
    runner.counts = {}
    raw = {"socket": raw_socket, "ucx": raw_ucx, "ib": raw_ib}.get(args.network, lambda *_: None)
    samples = collections.defaultdict(lambda: collections.defaultdict(list))
    for turn in range(args.rounds):
        print(f"round {turn + 1} of {args.rounds}", file=sys.stderr)
        for figure in figures_of(args):
            runs = {"plugin": lambda f=figure: plugin_run(runner, f, args.spin_us),
                    "raw": lambda f=figure: raw(runner, f, args.spin_us)}
            if figure.test == "latency" and args.network in ("socket", "ucx"):
                runs["floor"] = lambda f=figure: ping_pong(runner, f, None)
            order = list(runs) if turn % 2 == 0 else list(reversed(runs))
            for name in order:
                value = runs[name]()
                if value is not None:
                    samples[figure][name].append(value)
    return samples


def cell(values, index, digits=2):
    return f"{statistics.median(value[index] for value in values):.{digits}f}" if values else "–"


def row_of(figure, found):
    plugin, raw, floor = (found.get(name, []) for name in ("plugin", "raw", "floor"))
    ratio = "–"
    if raw:
        medians = [statistics.median(value.value for value in side) for side in (plugin, raw)]
        ratio = f"{medians[0] / medians[1]:.2f}"
    places = [size_text(figure.bytes)] + ([] if figure.test == "latency" else [str(figure.connections)])
    cells = [cell(plugin, 0), cell(raw, 0), ratio] + ([cell(floor, 0)] if figure.test == "latency" else [])
    return places + cells + [cell(plugin, 1), cell(raw, 1)]


def markdown(args, samples):
    peer = {"socket": ("socket_ping_pong", "iperf3"), "ucx": ("ucx_perftest",) * 2,
            "ib": ("ib_send_lat", "ib_write_bw")}.get(args.network, ("raw peer",) * 2)
    lines = []
    titles = {"latency": ("Latency: microseconds of a message one way",
                          ["size", args.network, peer[0], "ratio", "bare TCP, polling", f"CPU µs, {args.network}",
                           f"CPU µs, {peer[0]}"])}
    for test, text in (("one_way", "one way"), ("both_ways", "both ways, sum of both directions")):
        titles[test] = (f"Bandwidth {text}: GB/s",
                        ["size", "connections", args.network, peer[1], "ratio", f"CPU s/GB, {args.network}",
                         f"CPU s/GB, {peer[1]}"])
    for test in args.tests:
        title, columns = titles[test]
        lines += [f"{title}, median of {args.rounds} interleaved rounds.", "", f"| {' | '.join(columns)} |",
                  "|---:" * len(columns) + "|"]
        lines += [f"| {' | '.join(row_of(figure, samples[figure]))} |" for figure in figures_of(args)
                  if figure.test == test]
        lines.append("")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"), help="the build folder")
    parser.add_argument("--network", default="socket", help="name of the plugin (default socket)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated")
    parser.add_argument("--device", type=int, default=0, help="number of the plugin's device (default 0)")
    parser.add_argument("--tests", nargs="+", choices=["latency", "one_way", "both_ways"],
                        default=["latency", "one_way", "both_ways"])
    parser.add_argument("--sizes", nargs="+", type=size_bytes, default=[8, 4 << 10, 64 << 10, 1 << 20])
    parser.add_argument("--connections", nargs="+", type=int, default=[1], help="1 to 64 in each direction")
    parser.add_argument("--streams", type=int, default=1,
                        help="iperf3's streams per connection: settings.net.socket.streams (default 1)")
    parser.add_argument("--window", type=int, default=8, help="messages outstanding on a connection (default 8)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one figure, about; iperf3 takes at least 1")
    parser.add_argument("--spin-us", type=int,
                        help="plugin and socket_ping_pong sleep after so many µs without data (default: they poll)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--host", default="127.0.0.1", help="the server's address for the client")
    parser.add_argument("--netns", nargs=2, metavar=("SERVER", "CLIENT"), help="network namespaces to run in")
    parser.add_argument("--cpus", nargs=2, metavar=("SERVER", "CLIENT"),
                        help="processors to pin both sides to, of the plugin and of the raw peer: 0 1, or 0-3 4-7")
    parser.add_argument("--port", type=int, default=21000,
                        help="the programs meet at free ports among this one and the next 8000 (default 21000)")
    parser.add_argument("--rdma-devices", nargs=2, default=[], metavar=("SERVER", "CLIENT"),
                        help="RDMA devices of both sides, of the plugin ib and of its raw peer")
    parser.add_argument("--raw-args", type=shlex.split, default=[], help="of the raw peers ucx_perftest, ib_*")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="also write the tables to FILE")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.network == "socket":
        args.set.append(f"settings.net.socket.streams={args.streams}")
    missing = [tool for tool in RAW.get(args.network, ()) if shutil.which(tool) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} is missing; install {', '.join(sorted({PACKAGES[one] for one in missing}))}")
    try:
        text = markdown(args, measure_all(args))
    except RuntimeError as failure:
        sys.exit(str(failure))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    main()
