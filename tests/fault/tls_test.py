#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs with TLS on data connections, and a man in the middle that reads and changes bytes on the link.

Two hosts are network namespaces. A process carries the frames of the data's link from one host to the other. It keeps
the frames, and it may change one bit of the data, with a right checksum. Without TLS the data can be read, and a
changed bit makes a wrong result. With TLS the data look random, and a changed bit ends the job with a sentence.

Run as: tls_test.py PATH_OF_TUTTI. Needs root and TAP devices for the man in the middle; exits with 77 without.
"""

import os
import pathlib
import re
import secrets
import select
import signal
import struct
import subprocess
import sys
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import rails_test as rails  # noqa: E402
from hosts import open_tap  # noqa: E402
from run_tool import free_port  # noqa: E402

TIMEOUT_S = 60
LONGEST_FRAME = 1 << 16
MOST_CHANGED = 20  # segments: TCP may have received one already, or its receiver's queue may be full
KEPT_BYTES = 1 << 20
DATA_BYTES = 1000  # a segment with more is data of a call


def payload_of(frame):
    """The offsets of the TCP header and the payload of a frame; None for other frames."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return None
    tcp = 14 + (frame[14] & 15) * 4
    return tcp, tcp + (frame[tcp + 12] >> 4) * 4


def change_bit(frame, tcp, at):
    """Changes a bit of a segment, and its checksum with it (RFC 1624)."""
    word = tcp + (at - tcp) // 2 * 2
    frame += b"\0" * (len(frame) < word + 2)
    before, = struct.unpack_from("!H", frame, word)
    frame[at] ^= 0x40
    after, = struct.unpack_from("!H", frame, word)
    check, = struct.unpack_from("!H", frame, tcp + 16)
    total = (~check & 0xFFFF) + (~before & 0xFFFF) + after
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", frame, tcp + 16, ~total & 0xFFFF)


class MiddleMan:
    """A process between two hosts. `changes_after`: so many segments of data pass before one is changed."""

    def __init__(self, hosts, device, changes_after=None):
        self.kept = os.memfd_create("kept")
        self.counts = os.memfd_create("counts")
        os.write(self.counts, bytes(8))
        ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                taps = [open_tap(host, device) for host in hosts]
                os.write(told, b"1")
                self.carry(taps, changes_after)
            finally:
                os._exit(1)
        os.close(told)
        self.works = os.read(ready, 1) == b"1"
        os.close(ready)

    def carry(self, taps, changes_after):
        poll = select.poll()
        for tap in taps:
            poll.register(tap, select.POLLIN)
        segments = changed = kept = 0
        while True:
            for tap, _ in poll.poll():
                try:
                    frame = bytearray(os.read(tap, LONGEST_FRAME))
                    where = payload_of(frame)
                    if where and len(frame) - where[1] > DATA_BYTES:
                        segments += 1
                        if kept < KEPT_BYTES:
                            kept += os.write(self.kept, frame[where[1]:])
                        if changes_after is not None and segments > changes_after and changed < MOST_CHANGED:
                            change_bit(frame, where[0], where[1] + 500)
                            changed += 1
                            os.pwrite(self.counts, struct.pack("Q", changed), 0)
                    os.write(taps[1] if tap == taps[0] else taps[0], frame)
                except OSError:  # the device is down or full, as on any link
                    continue

    def changed(self):
        return struct.unpack("Q", os.pread(self.counts, 8, 0))[0]

    def seen(self):
        return os.pread(self.kept, KEPT_BYTES, 0)

    def end(self):
        """Its devices go with it."""
        if self.pid == 0:
            return
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0


def run_ranks(commands, identity):
    """(code, output with errors) of each rank."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")} | {"TUTTI_ID": identity}
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
             for command in commands]
    try:
        return [(rank.wait(timeout=TIMEOUT_S), text) for rank, text in
                [(rank, rank.communicate(timeout=TIMEOUT_S)[0]) for rank in ranks]]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()


def bench(rank, host, *settings, iterations=20):
    return [rails.TUTTI, "bench", "all_reduce", "--ranks", "2", "--rank", str(rank), "--min", "1M", "--max", "1M",
            "--iters", str(iterations), "--repeat", "1", "--set", f"host={host}",
            *(part for setting in settings for part in ("--set", setting))]


class Job(unittest.TestCase):
    def setUp(self):
        self.hosts = rails.make_hosts(self.addCleanup)

    def run_job(self, tls, changes_after=None):
        middle = MiddleMan(self.hosts, "tapped", changes_after)
        self.addCleanup(middle.end)
        if not middle.works:
            self.skipTest("needs TAP devices")
        for number, host in enumerate(self.hosts, 1):
            rails.ip("-n", host, "address", "add", f"10.213.9.{number}/24", "dev", "tapped")
            rails.ip("-n", host, "link", "set", "tapped", "up")
        results = run_ranks([["ip", "netns", "exec", host, *bench(rank, host, "bootstrap.interface=[=rail0]",
                                                                  "settings.net.socket.interface=[=tapped]",
                                                                  f"settings.net.socket.tls={tls}")]
                             for rank, host in enumerate(self.hosts)], f"10.213.0.1:41999:{secrets.token_hex(16)}")
        return middle, results

    def test_data_are_read_without_tls(self):
        middle, results = self.run_job("off")
        self.assertEqual([code for code, _ in results], [0, 0], results)
        seen = middle.seen()
        self.assertGreater(len(seen), KEPT_BYTES // 2)
        self.assertLess(len(zlib.compress(seen, 1)), 0.97 * len(seen), "the data of this job look random")

    def test_data_look_random_with_tls(self):
        for tls in ("on", "user"):
            with self.subTest(tls=tls):
                middle, results = self.run_job(tls)
                self.assertEqual([code for code, _ in results], [0, 0], results)
                self.assertRegex(results[0][1], r"wrong 0\b")
                seen = middle.seen()
                self.assertGreater(len(seen), KEPT_BYTES // 2)
                self.assertGreater(len(zlib.compress(seen, 1)), 0.99 * len(seen))
                middle.end()

    def test_a_changed_bit_is_a_wrong_result_without_tls(self):
        middle, results = self.run_job("off", changes_after=300)
        self.assertGreater(middle.changed(), 0)
        self.assertRegex("".join(text for _, text in results), r"wrong [1-9]|faulty|damaged", results)

    def test_a_changed_bit_ends_the_job_with_tls(self):
        for tls in ("on", "user"):
            with self.subTest(tls=tls):
                middle, results = self.run_job(tls, changes_after=300)
                self.assertGreater(middle.changed(), 0)
                for code, text in results:
                    self.assertNotEqual(code, 0, text)
                    self.assertNotRegex(text, r"wrong [1-9]")
                    self.assertRegex(text, r"network 'socket' lost the connection from rank \d \(host \S+, tapped\) to "
                                           r"rank \d \(host \S+, tapped\): 10\.213\.9\.\d:\d+ to 10\.213\.9\.\d:\d+: "
                                           r"TLS refuses what arrived .*; check the machines and links")
                middle.end()


class Settings(unittest.TestCase):
    def run_pair(self, first, second, *more):
        return run_ranks([bench(0, "a", f"settings.net.socket.tls={first}", *more, iterations=2),
                          bench(1, "b", f"settings.net.socket.tls={second}", *more, iterations=2)],
                         f"127.0.0.1:{free_port()}:{secrets.token_hex(16)}")

    def test_ranks_that_differ_are_told(self):
        for code, text in self.run_pair("on", "off"):
            self.assertNotEqual(code, 0)
            self.assertRegex(text, r"from rank \d \(host [ab], \S+\) to rank \d \(host [ab], \S+\): this rank "
                                   r"sends with.* TLS, but the rank at \S+:\d+ takes only data with.* TLS; set "
                                   r"settings\.net\.socket\.tls to the same value on all ranks")

    def test_the_log_tells_who_encrypts(self):
        for code, text in self.run_pair("on", "user", "log.level=info"):
            self.assertEqual(code, 0, text)
            self.assertRegex(text, r"TLS 1\.3 with TLS_AES_128_GCM_SHA256, sending: kernel TLS is (not )?in use")
            self.assertRegex(text, r"TLS 1\.3 with TLS_AES_128_GCM_SHA256, receiving: kernel TLS is (not )?in use")
            self.assertEqual(len(re.findall("TLS 1.3 with", text)), 2, "one line for each direction")


def main():
    rails.TUTTI = str(pathlib.Path(sys.argv.pop(1)).resolve())
    program = unittest.main(exit=False)
    sys.exit(rails.SKIPPED if program.result.skipped else 0 if program.result.wasSuccessful() else 1)


if __name__ == "__main__":
    if rails.ISOLATED not in os.environ:
        rails.isolate()
    main()
