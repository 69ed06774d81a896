# SPDX-License-Identifier: Apache-2.0
"""A link between two hosts (network namespaces) that delays and loses frames: two TAP devices, and a process that
carries frames from one device to the other. Kernels without netem have no other way.
"""

import heapq
import os
import pathlib
import random
import select
import signal
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import hosts  # noqa: E402

LONGEST_FRAME = 1 << 16
MOST_WAITING = 1 << 16  # frames in flight in one direction; a link with less memory loses the others


class Relay:
    """The process between two devices. `delay_s` has a lowest and a highest value: frames overtake each other."""

    def __init__(self, names, device, delay_s, loss, seed):
        self.counts = os.memfd_create("relay")  # of frames: carried, lost
        os.write(self.counts, bytes(16))
        ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                taps = [hosts.open_tap(name, device) for name in names]
                os.write(told, b"1")
                self.carry(taps, delay_s, loss, random.Random(seed))
            finally:
                os._exit(1)
        os.close(told)
        up = os.read(ready, 1) == b"1"
        os.close(ready)
        if not up:
            raise RuntimeError("cannot make TAP devices")

    def carry(self, taps, delay_s, loss, chance):
        waiting = []  # (when it is due, number, device, frame)
        number = carried = lost = 0
        poll = select.poll()
        for tap in taps:
            poll.register(tap, select.POLLIN)
        other = {taps[0]: taps[1], taps[1]: taps[0]}
        while True:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, frame = heapq.heappop(waiting)
                try:
                    os.write(to, frame)
                    carried += 1
                except OSError:  # the device is down or full
                    lost += 1
            os.pwrite(self.counts, struct.pack("QQ", carried, lost), 0)
            wait_ms = 1000 if not waiting else max(0, (waiting[0][0] - now) * 1000)
            for tap, _ in poll.poll(wait_ms):
                for _ in range(64):
                    try:
                        frame = os.read(tap, LONGEST_FRAME)
                    except OSError:
                        break
                    if chance.random() < loss or len(waiting) >= MOST_WAITING:
                        lost += 1
                        continue
                    number += 1
                    heapq.heappush(waiting, (time.monotonic() + chance.uniform(*delay_s), number, other[tap], frame))

    def frames(self):
        """(carried, lost)"""
        return struct.unpack("QQ", os.pread(self.counts, 16, 0))

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.counts)


def make_hosts(cleanup, delay_s, loss, seed):
    """Two hosts that a relay joins, and the relay. The link is called rail0 on both."""
    tag = f"{random.getrandbits(16):04x}"
    names = [f"tutti-a-{tag}", f"tutti-b-{tag}"]
    for name in names:
        hosts.add_host(name, cleanup)
    relay = Relay(names, "rail0", delay_s, loss, seed)
    cleanup(relay.end)
    for number, name in enumerate(names, 1):
        hosts.set_address(name, number, "rail0", 0)
    return names, relay
