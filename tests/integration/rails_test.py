#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts (network namespaces) joined by two links: channels are spread over both. Needs root; exits with 77 without.

Run as: rails_test.py PATH_OF_TUTTI [unittest arguments]
"""

import os
import pathlib
import secrets
import subprocess
import sys
import unittest

TIMEOUT_S = 60
TUTTI = "tutti"


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)


class TwoRails(unittest.TestCase):
    def setUp(self):
        tag = secrets.token_hex(2)
        self.hosts = [f"tutti-a-{tag}", f"tutti-b-{tag}"]
        for host in self.hosts:
            ip("netns", "add", host)
            self.addCleanup(ip, "netns", "delete", host, check=False)
            ip("-n", host, "link", "set", "lo", "up")
        for rail in (0, 1):
            ip("link", "add", f"rail{rail}", "netns", self.hosts[0], "type", "veth", "peer", f"rail{rail}", "netns",
               self.hosts[1])
            for number, host in enumerate(self.hosts, 1):
                ip("-n", host, "address", "add", f"10.213.{rail}.{number}/24", "dev", f"rail{rail}")
                ip("-n", host, "link", "set", f"rail{rail}", "up")

    def bench(self, *arguments):
        """Rank 0 on the first host, rank 1 on the second; returns what rank 0 printed."""
        meeting = f"10.213.0.1:41999:{secrets.token_hex(16)}"
        ranks = []
        for rank, host in enumerate(self.hosts):
            command = ["ip", "netns", "exec", host, TUTTI, "bench", "all_reduce", "--ranks", "2", "--rank", str(rank),
                       "--id", meeting, "--set", f"host={host}", "--set", "algorithm=ring",
                       "--set", "settings.net.socket.interface=[rail]", *arguments]
            ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env={k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}))
        outputs = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
        for rank, (out, err) in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, out + err)
        return outputs[0][0]

    def sent_by(self, rail):
        out = ip("netns", "exec", self.hosts[0], "cat", f"/sys/class/net/rail{rail}/statistics/tx_bytes").stdout
        return int(out)

    def test_channels_use_both_rails(self):
        self.bench("--min", "4M", "--max", "4M", "--iters", "3", "--repeat", "1", "--set", "channels=2")
        sent = [self.sent_by(0), self.sent_by(1)]
        self.assertGreater(min(sent), 0.3 * sum(sent), f"bytes by rail: {sent}")

    def test_one_channel_uses_one_rail(self):
        self.bench("--min", "4M", "--max", "4M", "--iters", "3", "--repeat", "1", "--set", "channels=1")
        sent = sorted([self.sent_by(0), self.sent_by(1)])
        self.assertLess(sent[0], 0.1 * sum(sent), f"bytes by rail: {sent}")


def namespaces_work():
    if os.geteuid() != 0:
        return False
    try:
        name = f"tutti-try-{secrets.token_hex(2)}"
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "probe", "type", "veth", "peer", "probe2")
        ip("netns", "delete", name)
        return True
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False


if __name__ == "__main__":
    TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if not namespaces_work():
        print("skipped: needs root and network namespaces with veth links")
        sys.exit(77)
    unittest.main(verbosity=2)
