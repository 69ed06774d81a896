// SPDX-License-Identifier: Apache-2.0
// The ELF note of a plugin (PLG-2). tutti_add_plugin() of CMake generates it. Authors who build without CMake write one
// line into one C source of the plugin:
//
//   TUTTI_PLUGIN_NOTE(TUTTI_KIND_NETWORK, TUTTI_NETWORK_ABI_MAJOR, TUTTI_NETWORK_ABI_MINOR, 0, "mine", "1.0.0", "");
#pragma once

#include "tutti/plugin/abi.h"

/* The note of this shared object. Name and version equal those of its tutti_plugin. `cuda_major` is the version of
   CUDA of its kernels, 0 without kernels; `architectures` are their SM versions, such as "90 100". C11, GCC or Clang.
 */
#define TUTTI_PLUGIN_NOTE(kind, major, minor, cuda_major, name, version, architectures)                               \
  struct tutti_elf_note {                                                                                             \
    uint32_t owner_bytes;                                                                                             \
    uint32_t descriptor_bytes;                                                                                        \
    uint32_t type;                                                                                                    \
    char owner[8];                                                                                                    \
    tutti_plugin_note descriptor;                                                                                     \
  };                                                                                                                  \
  __attribute__((used, retain, aligned(4), section(".note.tutti"))) static const struct tutti_elf_note tutti_note = { \
      sizeof TUTTI_NOTE_OWNER,                                                                                        \
      sizeof(tutti_plugin_note),                                                                                      \
      TUTTI_NOTE_TYPE,                                                                                                \
      TUTTI_NOTE_OWNER,                                                                                               \
      {TUTTI_NOTE_LAYOUT, kind, major, minor, cuda_major, name, version, architectures},                              \
  }
