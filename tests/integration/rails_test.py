#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts (network namespaces) joined by two links: channels are spread over both. Needs root; exits with 77 without.

The test runs itself again in mount and process namespaces of its own, with a /run of its own. The kernel removes the
network namespaces with them at each end of the test.

Run as: rails_test.py PATH_OF_TUTTI
        rails_test.py PATH_OF_TUTTI --outside: the test that nothing remains of a test that is killed
        rails_test.py PATH_OF_TUTTI --hold: makes the hosts, prints the numbers of their namespaces and waits
"""

import os
import pathlib
import re
import secrets
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from hosts import ISOLATED, SKIPPED, TIMEOUT_S, ip, isolate, links_work, make_hosts, skip  # noqa: E402

TUTTI = "tutti"


class TwoRails(unittest.TestCase):
    def setUp(self):
        self.hosts = make_hosts(self.addCleanup)

    def bench(self, *arguments):
        """Rank 0 on the first host, rank 1 on the second; returns the output of rank 0."""
        meeting = f"10.213.0.1:41999:{secrets.token_hex(16)}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        ranks = []
        for rank, host in enumerate(self.hosts):
            command = ["ip", "netns", "exec", host, TUTTI, "bench", "all_reduce", "--ranks", "2", "--rank", str(rank),
                       "--set", f"host={host}", "--set", "algorithm=ring",
                       "--set", "settings.net.socket.interface=[rail]", *arguments]
            ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env=environment | {"TUTTI_ID": meeting}))
        outputs = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
        for rank, (out, err) in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, out + err)
        return "".join(outputs[0])

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

    def test_a_port_that_one_host_lacks_is_told(self):
        ip("-n", self.hosts[1], "address", "flush", "dev", "rail1")
        said = self.bench("--min", "4M", "--max", "4M", "--iters", "3", "--repeat", "1", "--set", "channels=2")
        self.assertIn(f"warn 0/2 host '{self.hosts[0]}' has 2 of its fastest network ports (rail0, rail1), and host "
                      f"'{self.hosts[1]}' has 1 (rail0): the host with fewer ports limits the speed; check its ports",
                      said)
        self.assertIn("wrong 0", said)
        self.assertLess(self.sent_by(1), 0.1 * self.sent_by(0))


def network_namespaces():
    """The numbers of all network namespaces that a process is in or that a process sees mounted."""
    numbers = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            numbers.update(re.findall(r"net:\[(\d+)\]", os.readlink(process / "ns/net")))
            numbers.update(re.findall(r"net:\[(\d+)\]", (process / "mountinfo").read_text()))
        except OSError:  # it has ended
            continue
    return numbers


class NothingRemains(unittest.TestCase):
    """Runs outside, where the namespaces of a test that was killed would remain."""

    def test_after_sigkill(self):
        environment = {key: value for key, value in os.environ.items() if key != ISOLATED}
        with subprocess.Popen([sys.executable, __file__, TUTTI, "--hold"], stdout=subprocess.PIPE, text=True,
                              env=environment) as held:
            said = held.stdout.readline()
            seen = network_namespaces()
            held.kill()
        if said.startswith("skipped"):
            self.skipTest(said.partition(" ")[2].strip())
        made = set(said.split())
        self.assertEqual(len(made), 2)
        self.assertLessEqual(made, seen)
        deadline = time.monotonic() + TIMEOUT_S
        while network_namespaces() & made and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(network_namespaces() & made)
        self.assertFalse(list(pathlib.Path("/run").glob("netns/tutti-[ab]-*")))


def hold():
    hosts = make_hosts(lambda *call, **options: None)  # the kernel's own cleanup is on trial
    print(*(os.stat(f"/run/netns/{host}").st_ino for host in hosts), flush=True)
    time.sleep(TIMEOUT_S)


def run_tests(case):
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if result.skipped:
        return SKIPPED
    return 0 if result.wasSuccessful() else 1


def main():
    global TUTTI
    outside = ISOLATED not in os.environ
    if outside and "--outside" not in sys.argv:
        isolate()
    TUTTI = str(pathlib.Path(sys.argv[1]).resolve())
    if not outside and not links_work():
        skip("needs network namespaces with veth links")
    if "--hold" in sys.argv:
        hold()
        return 0
    return run_tests(NothingRemains if outside else TwoRails)


if __name__ == "__main__":
    sys.exit(main())
