#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout of ABI 1.0 holds, and a change that breaks it is named by struct and field.

    python3 layout_test.py SOURCE_DIR
"""

import pathlib
import shutil
import sys
import tempfile
import unittest

import layout

HERE = pathlib.Path(__file__).parent
SOURCE = pathlib.Path(sys.argv.pop(1))
CURRENT = SOURCE / "core" / "include"
FROZEN = HERE / "1.0"
SNAPSHOT = (FROZEN / "layout.txt").read_text().splitlines()


class Layout(unittest.TestCase):
    def test_current_headers_keep_the_layout(self):
        self.assertEqual(layout.compare(SNAPSHOT, layout.measure(CURRENT)), [])

    def test_snapshot_is_of_the_frozen_headers(self):
        self.assertEqual(layout.measure(FROZEN / "include"), SNAPSHOT)

    def changed(self, header, *replacements):
        """The faults of the frozen headers with a change."""
        with tempfile.TemporaryDirectory() as folder:
            include = pathlib.Path(folder) / "include"
            shutil.copytree(FROZEN / "include", include)
            file = include / "tutti" / "plugin" / f"{header}.h"
            text = file.read_text()
            for before, after in replacements:
                self.assertIn(before, text)
                text = text.replace(before, after, 1)
            file.write_text(text)
            return layout.compare(SNAPSHOT, layout.measure(include))

    def test_a_break_is_named(self):
        for header, before, after, faults in (
            ("network", "uint32_t max_connections;", "uint32_t inserted;\n  uint32_t max_connections;",
             ["struct tutti_net_properties: field 'max_connections' lies at byte 84 instead of 80"]),
            ("network", "int32_t rail;", "int64_t rail;",
             ["struct tutti_net_properties: field 'rail' lies at byte 88 instead of 84"]),
            ("network", "uint64_t guid;", "double guid;",
             ["struct tutti_net_properties: field 'guid' is declared as double guid instead of uint64_t guid"]),
            ("network", "uint32_t port;", "",
             ["struct tutti_net_properties: field 'port' is gone"]),
            ("network", "(*arm)(void* context)", "(*arm)(void* context, uint32_t flags)",
             ["struct tutti_network_ops: field 'arm' is declared as int32_t (*arm)(void*, uint32_t) instead of "
              "int32_t (*arm)(void*)"]),
            ("network", "FLUSH 0x8u", "FLUSH 0x20u", ["constant TUTTI_NET_CAP_FLUSH is 0x20u instead of 0x8u"]),
            ("types", "#define TUTTI_ALL_GATHER ", "#define TUTTI_ALL_GATHERS ",
             ["constant TUTTI_ALL_GATHER is gone"]),
            ("topology", "LINK_LIMIT 8u", "LINK_LIMIT 9u", None),
            ("tuner", "typedef struct tutti_call {", "typedef struct tutti_question {", None),
        ):
            if header == "tuner":
                found = self.changed(header, (before, after), ("} tutti_call;", "} tutti_question;"),
                                     ("const tutti_call*", "const tutti_question*"))
                self.assertIn("struct tutti_call is gone", found)
            elif faults is None:
                self.assertNotEqual(self.changed(header, (before, after)), [])
            else:
                self.assertEqual(self.changed(header, (before, after)), faults)

    def test_a_string_may_not_grow(self):
        end = "  uint64_t size;\n} tutti_str;"
        found = self.changed("abi", (end, "  uint64_t room;\n" + end))
        self.assertIn("struct tutti_str: field 'size' lies at byte 16 instead of 8", found)
        found = self.changed("abi", (end, end.replace("}", "  uint64_t room;\n}")))
        self.assertIn("struct tutti_str: field 'room' is new, but the struct may not grow", found)

    def test_tables_grow_at_their_end_with_a_new_minor_version(self):
        end = ("  int32_t (*arm)(void* context);\n", "  int32_t (*arm)(void* context);\n  int32_t (*more)(void*);\n")
        self.assertEqual(self.changed("network", end),
                         ["struct tutti_network_ops: field 'more' is new, so the minor version of the ABI must rise"])
        with tempfile.TemporaryDirectory() as folder:
            include = pathlib.Path(folder) / "include"
            shutil.copytree(FROZEN / "include", include)
            for header, before, after in (("network", *end), ("abi", "NETWORK_ABI_MINOR 0u", "NETWORK_ABI_MINOR 1u")):
                file = include / "tutti" / "plugin" / f"{header}.h"
                file.write_text(file.read_text().replace(before, after, 1))
            self.assertEqual(layout.compare(SNAPSHOT, layout.measure(include)), [])

    def test_a_field_in_the_padding_is_refused(self):
        found = self.changed("tuner", ("  uint32_t reserved;\n} tutti_call;", "} tutti_call;"))
        self.assertEqual(found, ["struct tutti_call: field 'reserved' is gone"])


if __name__ == "__main__":
    unittest.main()
