#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tutti topo` from end to end: trees, matrices, drawings and files of machines, and checks for implausible machines.

Run as: topo_test.py PATH_OF_TUTTI [unittest arguments]
"""

import pathlib
import platform
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from run_tool import clean_environment, run_tool

TIMEOUT_S = 60
TUTTI = "tutti"

SLOT = 'link_speed="16.0 GT/s PCIe" link_width="16"'


def gpu(dev, count, speed=SLOT):
    """One of two GPUs with `count` NVLinks to the other."""
    return f"""<pci busid="0000:{dev + 1}a:00.0" class="0x030200" vendor="0x10de" {speed}>
  <gpu dev="{dev}" sm="80" rank="{dev}" gdr="1">
    <nvlink target="0000:{2 - dev}a:00.0" count="{count}" tclass="0x030200"/>
  </gpu>
</pci>"""


def socket(numa, inside):
    return f"""<cpu numaid="{numa}" affinity="{'000000ff' if numa == 0 else '0000ff00'}" arch="x86_64"
  vendor="GenuineIntel" familyid="6" modelid="85">
<pci busid="0000:{numa + 1}0:00.0" class="0x060400" {SLOT}>
{inside}
</pci>
</cpu>"""


def nic(dev):
    return f"""<pci busid="0000:{dev + 1}b:00.0" class="0x020700" {SLOT}>
  <nic><net name="mlx5_{dev}" dev="{dev}" speed="200000" port="1" guid="0x{dev + 1}" maxconn="64" gdr="1"/></nic>
</pci>"""


def machine(first, second):
    return f'<system version="1">\n{socket(0, first)}\n{socket(1, second)}\n</system>\n'


SOUND = machine(gpu(0, 12) + nic(0), gpu(1, 12) + nic(1))
OVERLAY = machine('<pci busid="0000:1a:00.0" class="0x030200"/>', '<pci busid="0000:2a:00.0"/>')


def tutti(*arguments, **variables):
    return run_tool(TUTTI, "topo", *arguments, timeout=TIMEOUT_S, environment=clean_environment() | variables)


class TopoTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, text, name="machine.xml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def run_ok(self, *arguments):
        result = tutti(*arguments)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}{result.stdout}")
        return result.stdout

    def run_bad(self, exit_code, *arguments, says):
        result = tutti(*arguments)
        self.assertEqual(result.returncode, exit_code, f"{arguments}: {result.stderr}{result.stdout}")
        self.assertTrue(result.stderr.startswith("tutti: "), result.stderr)
        self.assertIn(says, result.stderr)


class Show(TopoTest):
    def test_this_machine(self):
        text = self.run_ok("show")
        self.assertRegex(text, r"(?m)^NUMA \d+  .*\d+ processors?$")
        self.assertIn("GB/s", self.run_ok("show", "--matrix"))
        self.assertIn("GB/s", self.run_ok("show", "--matrix", "--ranks", 3))

    def test_tree(self):
        text = self.run_ok("show", "--topology", self.file(SOUND))
        for line in ("NUMA 0  GenuineIntel, 8 processors",
                     "└─ 24 GB/s ─ switch  0000:10:00.0  16.0 GT/s ×16",
                     "   ├─ 24 GB/s ─ GPU 0  sm 80 (Ampere)  0000:1a:00.0  16.0 GT/s ×16  rank 0",
                     "   └─ 24 GB/s ─ NIC  0000:1b:00.0  16.0 GT/s ×16",
                     "      └─ 25 GB/s ─ mlx5_0  device 0  GPUDirect",
                     "NVLink: GPU 0 ═ 240 GB/s ═ GPU 1"):
            self.assertIn(line + "\n", text)

    def test_matrix(self):
        rows = [re.split(r"  +", line) for line in
                self.run_ok("show", "--topology", self.file(SOUND), "--matrix").splitlines()]
        self.assertEqual(rows[0], ["GB/s", "GPU 0", "GPU 1", "mlx5_0", "mlx5_1"])
        self.assertEqual(rows[1][:4], ["GPU 0", "·", "NVL 240", "PIX 24"])
        self.assertEqual(rows[3][:3], ["mlx5_0", "PIX 24", "PXN 24"])
        self.assertIn(["NVL", "NVLink or xGMI, directly or over NVSwitch"], rows)

    def test_fewer_ranks_than_gpus(self):
        text = self.run_ok("show", "--topology", self.file(SOUND), "--ranks", 1, "--matrix")
        self.assertNotIn("GPU 1", text)
        self.run_bad(1, "show", "--topology", self.file(SOUND), "--ranks", 3, says="has 2 GPUs")

    def test_drawing_is_xml_and_shows_all(self):
        drawing = self.folder / "drawing.svg"
        for text, arguments in ((SOUND, []), (OVERLAY, []), (OVERLAY, ["--complete"])):
            self.assertEqual(self.run_ok("show", "--topology", self.file(text), "--svg", drawing, *arguments), "")
            root = ElementTree.parse(drawing).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            words = " ".join("".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))
            self.assertIn("NUMA 1", words)
            self.assertIn("0000:2a:00.0", words)
        self.run_bad(1, "show", "--topology", self.file(SOUND), "--svg", self.folder / "absent/x.svg", says="absent")

    def test_export_comes_back(self):
        source = self.file(SOUND)
        for form in ("xml", "yaml"):
            first = self.run_ok("show", "--topology", source, "--export", form)
            again = self.run_ok("show", "--topology", self.file(first, f"again.{form}"), "--export", form)
            self.assertEqual(first, again)
            matrix = self.run_ok("show", "--topology", self.folder / f"again.{form}", "--matrix")
            self.assertEqual(matrix, self.run_ok("show", "--topology", source, "--matrix"))

    def test_overlay(self):
        source = self.file(OVERLAY)
        text = self.run_ok("show", "--topology", source)
        self.assertIn("overlay", text)
        self.assertIn("place of a GPU  0000:1a:00.0", text)
        self.assertIn("GPU 0", self.run_ok("show", "--topology", source, "--complete", "--matrix"))
        both = self.run_ok("show", "--topology", source, "--gpu", "0000:2a:00.0", "--matrix")
        self.assertIn("GPU 1", both)
        self.run_bad(1, "show", "--topology", source, "--gpu", "0000:2f:00.0", says="0000:2f:00.0")
        self.assertIn("NUMA", self.run_ok("show", "--topology", source, "--merge"))

    def test_usage(self):
        source = self.file(SOUND)
        self.run_bad(2, "show", "--export", "json", says="json")
        self.run_bad(2, "show", "--merge", says="--topology")
        self.run_bad(2, "show", "--topology", source, "--merge", "--complete", says="--merge")
        self.run_bad(1, "show", "--topology", self.folder / "absent.xml", says="absent.xml")
        self.run_bad(2, says="subcommand")


class Check(TopoTest):
    def test_sound(self):
        source = self.file(SOUND)
        self.assertEqual(self.run_ok("check", source), f"{source}: plausible\n")

    def test_warnings_are_no_failure(self):
        text = self.run_ok("check", self.file(machine(gpu(0, 12) + nic(0), gpu(1, 12))))
        self.assertRegex(text, r"machine\.xml:\d+: warning: GPU 1 .* no network adapter")

    def test_errors_are(self):
        sound = self.file(SOUND, "sound.xml")
        wrong = self.file(machine(gpu(0, 12), gpu(1, 11, 'link_speed="9 GT/s" link_width="16"')))
        result = tutti("check", sound, wrong)
        self.assertEqual(result.returncode, 1)
        self.assertIn("sound.xml: plausible\n", result.stdout)
        self.assertRegex(result.stdout, r"machine\.xml:\d+: error: .*'9 GT/s'")
        self.assertRegex(result.stdout, r"machine\.xml:\d+: error: GPU 0 .* 12 links to GPU 1 .* 11 back")

    def test_what_cannot_be_read_does_not_stop_it(self):
        result = tutti("check", self.file("<system", "broken.xml"), self.file(SOUND))
        self.assertEqual(result.returncode, 1)
        self.assertIn("broken.xml", result.stderr)
        self.assertIn("machine.xml: plausible", result.stdout)

    def test_under_a_launcher_the_first_rank_of_a_host_checks(self):
        source = self.file(SOUND)
        for rank in range(2):
            result = tutti("check", source, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
            self.assertEqual(result.returncode, 0, result.stderr)
            told = f"{platform.node()}: {source}: plausible\n" if rank == 0 else ""
            self.assertEqual(result.stdout, told)
        result = tutti("check", source, RANK="2", WORLD_SIZE="2", LOCAL_RANK="0")
        self.assertEqual(result.returncode, 1)
        self.assertIn("RANK=2", result.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    TUTTI = sys.argv.pop(1)
    unittest.main()
