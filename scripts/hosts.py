# SPDX-License-Identifier: Apache-2.0
"""Hosts for tests and benchmarks: network namespaces that links (pairs of veth devices) join. Needs root.

A program calls isolate() first. It then runs again in mount and process namespaces of its own, with a /run of its own.
The kernel removes the network namespaces with them, however the program ends.
"""

import ctypes
import fcntl
import os
import pathlib
import secrets
import stat
import struct
import subprocess
import sys
import tempfile

TIMEOUT_S = 60
SKIPPED = 77  # as CTest's SKIP_RETURN_CODE
ISOLATED = "TUTTI_HOSTS_ISOLATED"
CLONE_NEWNET = 0x40000000
TUN_DEVICE = (10, 200)  # the kernel's number of /dev/net/tun
TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x1002  # IFF_TAP | IFF_NO_PI
BURST_BYTES = 80_000  # little more than one largest segment: a larger bucket lets whole calls pass without a limit


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)


def within(host, *command):
    """The command line that runs a command on a host."""
    return ["ip", "netns", "exec", host, *command]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def isolate(arguments=None):
    """Runs this program again where all that it makes goes with it; exits with 77 where that is not possible."""
    if ISOLATED in os.environ:
        return
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
    with_own_run = ["sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
    try:
        possible = os.geteuid() == 0 and subprocess.run(namespaces + with_own_run + ["true"], capture_output=True,
                                                        timeout=TIMEOUT_S, check=False).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        skip("needs root and mount and process namespaces (unshare)")
    os.environ[ISOLATED] = "1"
    os.execvp(namespaces[0], namespaces + with_own_run + [sys.executable, *(arguments or sys.argv)])


def can_add_link(*arguments):
    """Whether the kernel makes network namespaces, and this link in them."""
    name = f"tutti-try-{secrets.token_hex(2)}"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", *arguments)
        return True
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False
    finally:
        if pathlib.Path(f"/run/netns/{name}").exists():
            ip("netns", "delete", name)


def links_work():
    """Whether the kernel makes network namespaces and veth devices."""
    return can_add_link("probe", "type", "veth", "peer", "probe2")


def bridges_work():
    """Whether the kernel makes bridges, which make_cluster() needs."""
    return can_add_link("bridge", "type", "bridge")


def require_links():
    if not links_work():
        skip("needs network namespaces with veth links")


def add_host(name, cleanup):
    ip("netns", "add", name)
    cleanup(ip, "netns", "delete", name, check=False)
    ip("-n", name, "link", "set", "lo", "up")


def set_address(host, number, device, rail, prefix=None):
    """Address number `number` of a rail: 10.213.RAIL.NUMBER, and prefix::NUMBER where a prefix of IPv6 is given."""
    if prefix is None:
        ip("-n", host, "address", "add", f"10.213.{rail}.{number}/24", "dev", device)
    else:
        ip("-n", host, "address", "add", f"{prefix}::{number}/64", "dev", device, "nodad")
    ip("-n", host, "link", "set", device, "up")


def add_link(host, device, other, other_device, mtu, gbit):
    """A link between two devices. `gbit`: Gbit/s in each direction, 0: no limit."""
    ends = ((host, device), (other, other_device))
    ip("link", "add", device, "netns", host, "mtu", str(mtu), "type", "veth", "peer", other_device, "netns", other,
       "mtu", str(mtu))
    for end in ends if gbit > 0 else ():
        limit_rate(*end, gbit)


def limit_rate(host, device, gbit):
    """What the device sends passes a token bucket (`tc ... tbf`)."""
    subprocess.run(within(host, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{gbit}gbit", "burst",
                          str(BURST_BYTES), "latency", "50ms"), check=True)


def make_hosts(cleanup, rails=2, prefix=None, names=None, mtu=1500, gbit=0):
    """Two hosts with links rail0, rail1 and so on; `cleanup` gets the calls that remove them."""
    tag = secrets.token_hex(2)
    hosts = names or [f"tutti-a-{tag}", f"tutti-b-{tag}"]
    for host in hosts:
        add_host(host, cleanup)
    for rail in range(rails):
        add_link(hosts[0], f"rail{rail}", hosts[1], f"rail{rail}", mtu, gbit)
        for number, host in enumerate(hosts, 1):
            set_address(host, number, f"rail{rail}", rail, prefix)
    return hosts


def make_cluster(cleanup, count, rails=1, names=None, mtu=1500, gbit=0):
    """`count` hosts, whose links rail0 and so on end at a switch each: a bridge in a namespace of its own."""
    tag = secrets.token_hex(2)
    hosts = names or [f"tutti-{number}-{tag}" for number in range(count)]
    for host in hosts:
        add_host(host, cleanup)
    for rail in range(rails):
        switch = f"tutti-switch{rail}-{tag}"
        add_host(switch, cleanup)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for number, host in enumerate(hosts, 1):
            add_link(host, f"rail{rail}", switch, f"port{number}", mtu, gbit)
            ip("-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            set_address(host, number, f"rail{rail}", rail)
    return hosts


def make_network(count, **options):
    """Hosts that are named like their addresses 10.213.0.1 and so on, as mpirun wants it, with one link each. A pair of
    veth devices joins two hosts, a switch joins more. `options`: as make_cluster(). The kernel removes the hosts with
    the program."""

    def nothing(*_, **__):
        """No call removes a host."""

    names = [f"10.213.0.{number}" for number in range(1, count + 1)]
    if count == 2:
        return make_hosts(nothing, rails=1, names=names, **options)
    return make_cluster(nothing, count, names=names, **options)


def enter(host):
    """Moves the calling thread into the network namespace of a host."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(f"/run/netns/{host}", os.O_RDONLY)
    try:
        if libc.setns(namespace, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {host}")
    finally:
        os.close(namespace)


def open_tun():
    """The kernel's TUN driver. A minimal root has no /dev/net/tun: a node of a temporary folder serves there."""
    if os.path.exists("/dev/net/tun"):
        return os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    with tempfile.TemporaryDirectory() as folder:
        os.mknod(f"{folder}/tun", stat.S_IFCHR | 0o600, os.makedev(*TUN_DEVICE))
        return os.open(f"{folder}/tun", os.O_RDWR | os.O_NONBLOCK)


def open_tap(host, device):
    """A TAP device within the host, as a file of this process, which enters the host's namespace."""
    enter(host)
    tap = open_tun()
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", device.encode(), TAP_WITHOUT_HEADER))
    return tap
