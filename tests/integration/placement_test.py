#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts (network namespaces) with two links each, whose ranks stand for the GPUs of a topology file.

The channels of the job are those of `tutti search`, and each link carries the bytes of its channels. Needs root; exits
with 77 without.

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
from hosts import ISOLATED, TIMEOUT_S, ip, isolate, make_hosts, require_links, within  # noqa: E402

TUTTI = "tutti"
RANKS_PER_HOST = 4
CHANNEL = re.compile(r"channel +(\d+): ([^\n(]+?)(?:  \(× \d+\))?$", re.MULTILINE)
PCI = "class: {}, link_speed: 16.0 GT/s PCIe, link_width: 16"


def device(busid, kind):
    return f"          - {{busid: '0000:{busid}.0', {PCI.format('0x030200')}, {kind}}}\n"


def switch(bus, gpus, port, mbps):
    """A PCI switch with two GPUs and an adapter."""
    lines = [f"      - busid: '0000:{bus:x}:00.0'", *PCI.format("0x060400").split(", "), "pci:\n"]
    text = "\n        ".join(lines)
    for place, gpu in enumerate(gpus, 1):
        text += device(f"{bus + place:x}:00", f"gpu: {{dev: {gpu}, sm: 80, gdr: 1}}")
    return text + device(f"{bus + 9:x}:00", f"nic: {{net: {{name: rail{port}, dev: {port}, speed: {mbps}, gdr: 1, "
                                           f"guid: 0x{port + 1}}}}}").replace("0x030200", "0x020700")


def topology(folder, mbps):
    """Two switches below one CPU: each has two GPUs and a port of this speed. GPU numbers do not follow PCI order."""
    file = pathlib.Path(folder) / "machine.yaml"
    file.write_text("tutti_topology: 1\ncpu:\n  - numaid: 0\n    arch: x86_64\n    vendor: GenuineIntel\n    pci:\n"
                    + switch(0x10, (3, 1), 0, mbps[0]) + switch(0x30, (2, 0), 1, mbps[1]))
    return file


class Placement(unittest.TestCase):
    def setUp(self):
        self.hosts = make_hosts(self.addCleanup)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def environment(self):
        return {key: value for key, value in os.environ.items() if key not in (ISOLATED, "TUTTI_ID")}

    def searched(self, file, algorithm, channels):
        """The channels of an algorithm as `tutti search` prints them, by number."""
        run = subprocess.run([TUTTI, "search", "--topology", file, "--nodes", "2", "--channels", "--set",
                              f"channels={channels}"], capture_output=True, text=True, timeout=TIMEOUT_S,
                             env=self.environment(), check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        part = re.search(rf"^{algorithm}: .*?(?=^$|\Z)", run.stdout, re.MULTILINE | re.DOTALL).group()
        return {int(number): text.strip() for number, text in CHANNEL.findall(part)}

    def bench(self, file, algorithm, channels, size="4M"):
        """The log of a job: rank 0 to 3 on the first host, 4 to 7 on the second."""
        meeting = f"10.213.0.1:41999:{secrets.token_hex(16)}"
        ranks = []
        for rank in range(RANKS_PER_HOST * len(self.hosts)):
            host = self.hosts[rank // RANKS_PER_HOST]
            command = within(host, TUTTI, "bench", "all_reduce", "--ranks", RANKS_PER_HOST * len(self.hosts), "--rank",
                             rank, "--min", size, "--max", size, "--iters", 2, "--repeat", 1)
            for setting in (f"host={host}", f"algorithm={algorithm}", f"channels={channels}", f"topology.file={file}",
                            "topology.host_ranks=gpu", "log.level=debug", "settings.net.socket.interface=[rail]"):
                command += ["--set", setting]
            ranks.append(subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True,
                                          env=self.environment() | {"TUTTI_ID": meeting}))
        outputs = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
        for rank, (out, err) in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, out + err[-2000:])
        return [err for _, err in outputs]

    def joined(self, log, algorithm, first_rank):
        """The channels that a machine's first rank found, with ranks counted from that rank."""
        lines = "\n".join(line for line in log.splitlines() if f" {algorithm}: channel" in line)
        channels = {}
        for number, text in CHANNEL.findall(lines):
            channels[int(number)] = re.sub(r"(?<![a-z\d])\d+", lambda rank: str(int(rank.group()) - first_rank),
                                           text.strip())
        return channels

    def carried(self):
        """The bytes that each link of the first host has sent."""
        return [int(ip("netns", "exec", self.hosts[0], "cat", f"/sys/class/net/rail{rail}/statistics/tx_bytes").stdout)
                for rail in range(2)]

    def check(self, algorithm, channels, mbps):
        file = topology(self.folder, mbps)
        searched = self.searched(file, algorithm, channels)
        self.assertTrue(searched)
        before = self.carried()
        logs = self.bench(file, algorithm, channels)
        for first in (0, RANKS_PER_HOST):
            self.assertEqual(self.joined(logs[first], algorithm, first), searched)
        exits = [text.split()[-1] for text in searched.values()]
        sent = [after - at_first for after, at_first in zip(self.carried(), before)]
        for rail in range(2):
            share = exits.count(f"rail{rail}") / len(exits)
            self.assertAlmostEqual(sent[rail] / sum(sent), share, delta=0.1, msg=f"{searched}, bytes by link: {sent}")
        return exits

    def test_both_ports_carry_their_channels(self):
        for algorithm, channels in (("ring", 2), ("tree", 4)):  # two trees share a channel of the search
            with self.subTest(algorithm=algorithm):
                self.assertEqual(sorted(self.check(algorithm, channels, (10000, 10000))), ["rail0", "rail1"])

    def test_the_one_channel_uses_the_port_that_was_found(self):
        for fast, mbps in enumerate(((100000, 10000), (10000, 100000))):
            with self.subTest(fast=fast):
                self.assertEqual(self.check("ring", 1, mbps), [f"rail{fast}"])

    def test_ranks_without_a_gpu_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            file = topology(folder, (10000, 10000))
            for ranks, settings, text in ((5, [f"topology.file={file}"], r"5 ranks of this host do not fit on 4 GPUs"),
                                          (2, [], r"no file gives the GPUs; name one in topology\.file")):
                command = [TUTTI, "bench", "all_reduce", "--ranks", str(ranks), "--max", "4K", "--iters", "1"]
                for setting in ["topology.host_ranks=gpu", *settings]:
                    command += ["--set", setting]
                run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                                     env=self.environment())
                self.assertEqual(run.returncode, 1, run.stdout)
                self.assertRegex(run.stderr, text)


if __name__ == "__main__":
    isolate()
    TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    require_links()
    unittest.main(verbosity=2)
