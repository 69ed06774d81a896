#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts (network namespaces) with two links each, whose ranks stand for the GPUs of a topology file.

The log of the job gives the channels as `tutti search` does, and each link carries the bytes of its channels. Needs
root; exits with 77 without.

Run as: placement_test.py PATH_OF_TUTTI
"""

import os
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from hosts import (ISOLATED, TIMEOUT_S, add_host, ip, isolate, make_hosts, require_links, set_address,  # noqa: E402
                   within)

TUTTI = "tutti"
CHANNEL = re.compile(r"channel +\d+: .*$", re.MULTILINE)
PORTS = 2
OWN_PORTS = "own ports of this machine's ranks"
SPEED = "speed: 10000"  # of a port, in Mb/s
PCI = "class: {}, link_speed: 16.0 GT/s PCIe, link_width: 16"


def device(busid, pci_class, kind):
    return f"          - {{busid: '0000:{busid}.0', {PCI.format(pci_class)}, {kind}}}\n"


def switch(bus, gpus, port, settings):
    """A PCI switch with GPUs and an adapter. `settings`: of the adapter's port."""
    lines = [f"      - busid: '0000:{bus:x}:00.0'", *PCI.format("0x060400").split(", "), "pci:\n"]
    text = "\n        ".join(lines)
    for place, gpu in enumerate(gpus, 1):
        text += device(f"{bus + place:x}:00", "0x030200", f"gpu: {{dev: {gpu}, sm: 80, gdr: 1}}")
    return text + device(f"{bus + 15:x}:00", "0x020700", f"nic: {{net: {{name: rail{port}, dev: {port}, gdr: 1, "
                                                         f"guid: 0x{port + 1}, {settings}}}}}")


def topology(folder, settings, gpus=4, name="machine.yaml"):
    """Two switches below one CPU: each has half of the GPUs and a port. GPU numbers do not follow PCI order."""
    file = pathlib.Path(folder) / name
    file.write_text("tutti_topology: 1\ncpu:\n  - numaid: 0\n    arch: x86_64\n    vendor: GenuineIntel\n    pci:\n"
                    + switch(0x10, range(gpus - 1, 0, -2), 0, settings[0])
                    + switch(0x30, range(gpus - 2, -1, -2), 1, settings[1]))
    return file


class Job(unittest.TestCase):
    """Two hosts with jobs on them."""

    ranks_are = "topology.host_ranks=gpu"  # setting of jobs and of the search
    device = "host"

    def setUp(self):
        self.hosts = self.make_hosts()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def make_hosts(self):
        return make_hosts(self.addCleanup)

    def environment(self):
        return {key: value for key, value in os.environ.items() if key not in (ISOLATED, "TUTTI_ID")}

    def searched(self, file, algorithm, channels, *arguments):
        """The lines of `tutti search` about the channels of an algorithm, and the number of channels over all machines.
        """
        run = subprocess.run([TUTTI, "search", "--topology", file, "--nodes", "2", "--set", f"channels={channels}",
                              "--set", self.ranks_are, *arguments], capture_output=True, text=True,
                             timeout=TIMEOUT_S, check=False, env=self.environment())
        self.assertEqual(run.returncode, 0, run.stderr)
        part = re.search(rf"^{algorithm}: .*?(?=^$|\Z)", run.stdout, re.MULTILINE | re.DOTALL).group()
        return CHANNEL.findall(part), int(re.search(r"connect of \d+ ranks, (\d+) channels", part)[1])

    def rank_environment(self, _host, _rank):
        """Variables of a rank, by its number within its host."""
        return {}

    def bench(self, files, algorithm, channels, ranks_per_host=4, size="4M"):
        """The logs of a job: the first ranks on the first host, the others on the second. `files`: of the hosts."""
        meeting = f"10.213.0.1:41999:{secrets.token_hex(16)}"
        ranks = []
        for rank in range(ranks_per_host * len(self.hosts)):
            number = rank // ranks_per_host
            host, file = self.hosts[number], files[number]
            command = within(host, TUTTI, "bench", "all_reduce", "--ranks", ranks_per_host * len(self.hosts), "--rank",
                             rank, "--min", size, "--max", size, "--iters", 2, "--repeat", 1, "--device", self.device)
            for setting in (f"host={host}", f"algorithm={algorithm}", f"channels={channels}", f"topology.file={file}",
                            "log.level=info", "settings.net.socket.interface=[rail]", self.ranks_are):
                command += ["--set", setting]
            ranks.append(subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True,
                                          env=self.environment() | self.rank_environment(number, rank % ranks_per_host)
                                          | {"TUTTI_ID": meeting}))
        outputs = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
        for rank, (out, err) in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, out + err[-2000:])
        return [err for _, err in outputs]

    def joined(self, log, algorithm, first_rank):
        """The lines of the log about the channels of a machine, with ranks counted from its first rank."""
        channels = [line.partition(f" {algorithm}: ")[2] for line in log.splitlines()
                    if f" {algorithm}: channel" in line]

        def counted(line):
            name, ranks = line.split(":", 1)
            between = re.sub(r"(?<= )\d+(?= )", lambda rank: str(int(rank.group()) - first_rank), ranks + " ")
            return f"{name}:{between.rstrip()}"

        return [counted(line) for line in channels]

    def carried(self):
        """The bytes that each host has sent by each of its links."""
        return [[int(ip("netns", "exec", host, "cat", f"/sys/class/net/rail{rail}/statistics/tx_bytes").stdout)
                 for rail in range(PORTS)] for host in self.hosts]


class Placement(Job):
    def check(self, algorithm, channels, settings, ranks_per_host=4):
        """Runs a job. Its channels must be those of the search, and the links carry their shares.

        Returns the port by which each channel over all machines leaves a machine."""
        file = topology(self.folder, settings, ranks_per_host)
        searched, count = self.searched(file, algorithm, channels)
        self.assertTrue(searched)
        before = self.carried()
        logs = self.bench([file, file], algorithm, channels, ranks_per_host)
        for first in (0, ranks_per_host):
            logged = self.joined(logs[first], algorithm, first)
            for line, of_job in zip(searched, logged):
                print(f"{algorithm}, search: {line}\n{algorithm}, job:    {of_job}", file=sys.stderr)
            self.assertEqual(logged, searched)
        found = [line.split()[-1] for line in self.searched(file, algorithm, channels, "--channels")[0]]
        trees = 2 if algorithm == "tree" else 1  # that share a channel of the search
        exits = [found[channel // trees % len(found)] for channel in range(count)]
        for host, (now, earlier) in enumerate(zip(self.carried(), before)):
            sent = [after - at_first for after, at_first in zip(now, earlier)]
            print(f"\n{algorithm}, 2 hosts × {ranks_per_host} ranks, channels={channels}: host {host} sent "
                  + ", ".join(f"{count / 1e6:.2f} MB by rail{rail}" for rail, count in enumerate(sent)), end=" ")
            for rail in range(PORTS):
                share = exits.count(f"rail{rail}") / len(exits)
                self.assertAlmostEqual(sent[rail] / sum(sent), share, delta=0.1, msg=f"{searched}, bytes: {sent}")
        return exits

    def test_both_ports_carry_their_channels(self):
        for ranks_per_host in (4, 8):
            for algorithm, channels in (("ring", 2), ("tree", 4)):
                with self.subTest(algorithm=algorithm, ranks_per_host=ranks_per_host):
                    self.assertEqual(sorted(self.check(algorithm, channels, [SPEED, SPEED], ranks_per_host)),
                                     channels // 2 * ["rail0"] + channels // 2 * ["rail1"])

    def test_ranks_share_the_ports_if_no_channel_names_one(self):
        file = topology(self.folder, [SPEED, SPEED])
        search = subprocess.run([TUTTI, "search", "--topology", file, "--nodes", "2", "--set", self.ranks_are],
                                capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=self.environment())
        self.assertIn("own ports of a machine's ranks: rail0, rail0, rail1, rail1\n", search.stdout)
        for algorithm in ("hier/exchange", "direct/two-shot"):
            with self.subTest(algorithm=algorithm):
                before = self.carried()
                logs = self.bench([file, file], algorithm, 1)
                for first in (0, 4):
                    self.assertIn(f"{OWN_PORTS}: rail0, rail0, rail1, rail1\n", logs[first])
                for host, (now, earlier) in enumerate(zip(self.carried(), before)):
                    sent = [after - at_first for after, at_first in zip(now, earlier)]
                    print(f"\n{algorithm}, 2 hosts × 4 ranks: host {host} sent "
                          + " and ".join(f"{count / 1e6:.2f} MB" for count in sent), end=" ")
                    self.assertAlmostEqual(sent[0] / sum(sent), 0.5, delta=0.1, msg=sent)

    def test_a_port_carries_as_many_channels_as_maxconn(self):
        for settings, exits in (([SPEED, SPEED], 2 * ["rail0"] + 2 * ["rail1"]),
                                ([SPEED, f"{SPEED}, maxconn: 1"], 2 * ["rail0"] + ["rail1"]),
                                ([f"{SPEED}, maxconn: 1", SPEED], ["rail0", "rail1"])):
            with self.subTest(settings=settings):
                self.assertEqual(sorted(self.check("ring", 4, settings)), exits)

    def test_fewer_channels_than_wanted_are_told(self):
        file = topology(self.folder, [f"{SPEED}, maxconn: 1"] * PORTS)
        told = re.compile(r"(ring|direct): (\d) channels? instead of 4: port (rail\d) of machine 0 takes 1 \(maxconn\)")
        log = self.bench([file, file], "direct", 4)[0]
        search = subprocess.run([TUTTI, "search", "--topology", file, "--nodes", "2", "--set", "channels=4", "--set",
                                 "topology.host_ranks=gpu"], capture_output=True, text=True, timeout=TIMEOUT_S,
                                check=True, env=self.environment())
        expected = [("ring", "2", "rail0"), ("direct", "1", "rail0")]
        self.assertEqual(sorted(told.findall(log)), sorted(expected), log)
        self.assertEqual(sorted(told.findall(search.stdout)), sorted(expected), search.stdout)

    def test_the_one_channel_uses_the_port_that_was_found(self):
        for fast, settings in enumerate((["speed: 100000", SPEED], [SPEED, "speed: 100000"])):
            with self.subTest(fast=fast):
                self.assertEqual(self.check("ring", 1, settings), [f"rail{fast}"])

    def test_ranks_without_a_gpu_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            file = topology(folder, [SPEED, SPEED])
            for ranks, settings, text in ((5, [f"topology.file={file}"], r"5 ranks of this host do not fit on 4 GPUs"),
                                          (2, [], r"no file gives the GPUs; name one in topology\.file")):
                command = [TUTTI, "bench", "all_reduce", "--ranks", str(ranks), "--max", "4K", "--iters", "1"]
                for setting in ["topology.host_ranks=gpu", *settings]:
                    command += ["--set", setting]
                run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                                     env=self.environment())
                self.assertEqual(run.returncode, 1, run.stdout)
                self.assertRegex(run.stderr, text)


class CrossedRails(Job):
    """Port rail0 of each host leads to rail1 of the other host. Both hosts number rail0 first."""

    def make_hosts(self):
        tag = secrets.token_hex(2)
        hosts = [f"tutti-a-{tag}", f"tutti-b-{tag}"]
        for host in hosts:
            add_host(host, self.addCleanup)
        for rail in range(PORTS):
            ip("link", "add", f"rail{rail}", "index", str(40 + rail), "netns", hosts[0], "type", "veth", "peer",
               "name", f"rail{1 - rail}", "index", str(51 - rail), "netns", hosts[1])
            set_address(hosts[0], 1, f"rail{rail}", rail)
            set_address(hosts[1], 2, f"rail{1 - rail}", rail)
        return hosts

    def test_channels_stay_on_their_rail(self):
        files = [topology(self.folder, [f"{SPEED}, rail: {rail}" for rail in rails], name=f"{host}.yaml")
                 for host, rails in enumerate(((0, 1), (1, 0)))]
        for algorithm, channels in (("ring", 2), ("tree", 4)):
            with self.subTest(algorithm=algorithm):
                before = self.carried()
                logs = self.bench(files, algorithm, channels)
                ports = [[line.split()[-1] for line in self.joined(logs[first], algorithm, first)] for first in (0, 4)]
                self.assertEqual(sorted(ports[0]), ["rail0", "rail1"])
                self.assertEqual(ports[1], ports[0][::-1])
                for now, earlier in zip(self.carried(), before):
                    sent = [after - at_first for after, at_first in zip(now, earlier)]
                    self.assertGreater(min(sent), 0.4 * sum(sent), f"bytes by port: {sent}")

    def test_ranks_at_equal_positions_stay_on_a_rail(self):
        files = [topology(self.folder, [f"{SPEED}, rail: {rail}" for rail in rails], name=f"{host}.yaml")
                 for host, rails in enumerate(((0, 1), (1, 0)))]
        before = self.carried()
        logs = self.bench(files, "hier/exchange", 1)
        self.assertIn(f"{OWN_PORTS}: rail0, rail0, rail1, rail1\n", logs[0])
        self.assertIn(f"{OWN_PORTS}: rail1, rail1, rail0, rail0\n", logs[4])
        for now, earlier in zip(self.carried(), before):
            sent = [after - at_first for after, at_first in zip(now, earlier)]
            self.assertGreater(min(sent), 0.4 * sum(sent), f"bytes by port: {sent}")


if __name__ == "__main__":
    isolate()
    TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    require_links()
    unittest.main(verbosity=2)
