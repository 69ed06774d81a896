#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several networks in one communicator: rules choose the network of each call, and each call's result is right.

Run as: networks_test.py PATH_OF_TUTTI SECOND_NETWORK [DEVICE]
SECOND_NETWORK: the name or the path of the plugin that is used beside socket.
DEVICE: host (the default) or cuda, where the buffers of the calls are. All ranks may share one GPU.
"""

import os
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import unittest

from run_tool import SHARED_GPU, SKIPPED, count_gpus, free_port

TUTTI = sys.argv[1]
SECOND = str(pathlib.Path(sys.argv[2]).resolve()) if sys.argv[2].endswith(".so") else sys.argv[2]
NAME = re.sub(r"^tutti-net-|\.so$", "", pathlib.Path(SECOND).name)
DEVICE = sys.argv[3] if len(sys.argv) > 3 else "host"


class Networks(unittest.TestCase):
    def run_tool(self, command, job, *more):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(job)
            file.flush()
            environment = {"TUTTI_TIMEOUTS_OPERATION": "30s", **os.environ, **SHARED_GPU}
            return subprocess.run([TUTTI, *command.split(), "--config", file.name, *more], capture_output=True,
                                  text=True, timeout=120, check=False, env=environment)

    def bench(self, collective, hosts, job, *more):
        """A run of 4 ranks, which checks every result."""
        done = self.run_tool(f"bench {collective} --device {DEVICE} --threads --ranks 4 --hosts {hosts} --min 64 "
                             "--max 64K --iters 5", job, *more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("wrong 0", done.stdout)
        return done

    def networks(self, collective, job, *more):
        """The networks that the calls used, by size in bytes."""
        done = self.bench(collective, "a,a,b,b", job, *more)
        found = {}
        for line in done.stdout.splitlines():
            if row := re.match(r" +(\d+) .*net-(\S+) ×\d+$", line):
                found[int(row[1])] = row[2]
        self.assertTrue(found, done.stdout)
        return found

    def test_size(self):
        job = f"network: [socket, {SECOND}]\nrules: [{{match: {{max_size: 1KiB}}, choose: {{network: {NAME}}}}}]\n"
        for size, network in self.networks("all_reduce", job).items():
            self.assertEqual(network, NAME if size <= 1024 else "socket", size)

    def test_back_and_forth(self):
        """Calls change to the second network and back, also with fail-over."""
        job = (f"network: [socket, {SECOND}]\n"
               f"rules: [{{match: {{min_size: 512, max_size: 4KiB}}, choose: {{network: {NAME}}}}}]\n")
        for collective in ("all_reduce", "send_recv"):
            for more in ((), ("--set", "net.failover=true"), ("--set", "protocol=simple"), ("--set", "protocol=ll")):
                for size, network in self.networks(collective, job, "--repeat", "2", *more).items():
                    self.assertEqual(network, NAME if 512 <= size <= 4096 else "socket", f"{collective} {size} {more}")

    @unittest.skipUnless(NAME.startswith("device"), "the second network does not move memory of GPUs")
    def test_one_network_moves_memory_of_gpus(self):
        job = (f"network: [socket, {SECOND}]\nprotocol: simple\n"
               f"rules: [{{match: {{min_size: 1KiB, max_size: 16KiB}}, choose: {{network: {NAME}}}}}]\n")
        done = self.bench("all_reduce", "a,a,b,b", job, "--repeat", "2")
        moved = re.findall(rf"network {NAME}: (\d+) messages from memory of the GPU", done.stderr)
        self.assertGreater(sum(map(int, moved)), 0, done.stderr)

    def test_collective(self):
        job = (f"network: [socket, {SECOND}]\n"
               "rules: [{match: {collective: all_gather}, forbid: {network: socket}}]\n")
        self.assertEqual(set(self.networks("all_gather", job).values()), {NAME})
        self.assertEqual(set(self.networks("all_reduce", job).values()), {"socket"})

    def test_first_of_the_list(self):
        self.assertEqual(set(self.networks("all_reduce", f"network: [{SECOND}, socket]\n").values()), {NAME})

    def test_rules_of_auto(self):
        job = (f"plugins.network: [socket, {SECOND}]\n"
               "rules: [{match: {max_size: 1KiB}, forbid: {network: socket}}]\n")
        for size, network in self.networks("all_reduce", job).items():
            self.assertEqual(network, NAME if size <= 1024 else "socket", size)

    def test_explain(self):
        job = f"network: [socket, {SECOND}]\nrules: [{{match: {{max_size: 1KiB}}, choose: {{network: {NAME}}}}}]\n"
        for size, network in (("1K", NAME), ("2K", "socket")):
            done = self.run_tool(f"explain all_reduce --ranks 2 --hosts a,b --size {size}", job)
            self.assertRegex(done.stdout, rf"chosen: .* network '{network}'", done.stderr)

    def paths(self, collective, job, *more):
        """{network: {(host of the sender, host of the receiver)}}: the connections that the calls made, without
        connections that took the place of lost connections."""
        done = self.bench(collective, "a,b,c,d", job, "--set", "log.level=debug", *more)
        found, lost = {}, set()
        for network, sender, receiver, event in re.findall(
                r"network '(\w+)', from rank \d \(host (\w), [^)]*\) to rank \d \(host (\w), [^)]*\): (.*)$",
                done.stderr, re.MULTILINE):
            # A rank that leaves closes its connections. With fail-over, a peer that does not know yet that the rank has
            # left tries the next route.
            if event.endswith("the next route is tried"):
                lost.add((sender, receiver))
            elif event == "connected" and (sender, receiver) not in lost:
                found.setdefault(network, set()).add((sender, receiver))
        return found, done.stdout

    INSIDE = {("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")}

    def test_racks(self):
        """Inside racks, all connections go over one network, whatever the rules choose for the call."""
        job = (f"network: [socket, {SECOND}]\nnet: {{racks: [left=a b, right=c d], inside_rack: {SECOND}}}\n"
               "rules: [{match: {collective: all_reduce}, choose: {network: socket}}]\n")
        between = {(x, y) for x in "abcd" for y in "abcd" if x != y} - self.INSIDE
        for more in ((), ("--set", "net.failover=true")):
            found, output = self.paths("all_to_all", job, "--set", "algorithm=direct", *more)
            self.assertEqual(found, {NAME: self.INSIDE, "socket": between})
            self.assertRegex(output, rf"/net-socket\+net-{NAME} ×")
        for collective in ("all_reduce", "all_gather", "broadcast"):
            found, _ = self.paths(collective, job)
            self.assertLessEqual(found[NAME], self.INSIDE, collective)
            self.assertLessEqual(found["socket"], between, collective)
        done = self.run_tool("explain all_reduce --ranks 4 --hosts a,b,c,d", job)
        self.assertRegex(done.stdout, rf"chosen: .* network 'socket', inside racks '{NAME}'", done.stderr)

    def test_racks_and_rules(self):
        """A rule may choose the network inside racks for calls between them, too."""
        job = (f"network: [socket, {SECOND}]\nnet: {{racks: [left=a b, right=c d], inside_rack: {SECOND}}}\n"
               f"rules: [{{match: {{max_size: 1KiB}}, choose: {{network: {NAME}}}}}]\n")
        for more in ((), ("--set", "check.data=true"), ("--set", "net.failover=true")):
            found, _ = self.paths("all_to_all", job, "--set", "algorithm=direct", *more)
            self.assertFalse(found["socket"] & self.INSIDE, more)
            self.assertLessEqual(self.INSIDE, found[NAME], more)
            self.assertTrue(found[NAME] - self.INSIDE, more)

    def test_host_in_two_racks(self):
        job = f"network: [socket, {SECOND}]\nnet: {{racks: [left=a b, right=b], inside_rack: {SECOND}}}\n"
        done = self.run_tool("bench all_reduce --threads --ranks 2 --hosts a,b --max 64", job)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"yaml:2:\d+: net.racks: the racks 'left' and 'right' both hold host 'b'; let")

    def test_nothing_left(self):
        job = f"network: [socket, {SECOND}]\nrules: [choose: {{network: ib}}]\n"
        done = self.run_tool("bench all_reduce --threads --ranks 2 --hosts a,b --max 64", job)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, rf"this rule chooses network 'ib' for .*, but the communicator uses 'socket', "
                         rf"'{NAME}'; add 'ib' to 'network'")

    def test_disagreement(self):
        """Networks are settings on which ranks agree."""
        processes = []
        meeting = f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}"
        for rank, networks in ((0, f"[socket, {SECOND}]"), (1, "socket")):
            processes.append(subprocess.Popen(
                [TUTTI, "bench", "all_reduce", "--ranks", "2", "--rank", str(rank), "--max", "64", "--set",
                 f"network={networks}", "--set", f"host=host{rank}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env={"TUTTI_ID": meeting}))
        for process in processes:
            _, errors = process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("ranks disagree: config key 'network'", errors)


if __name__ == "__main__":
    if DEVICE == "cuda" and count_gpus() == 0:
        print("skipped: there is no GPU")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
