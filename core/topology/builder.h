// SPDX-License-Identifier: Apache-2.0
// From a document to nodes and wires.
#pragma once

#include "topology/document.h"
#include "topology/machine.h"
#include "topology/system.h"

namespace tutti::topology {

/// Nodes by type: GPUs, PCI switches and adapters by PCI address, ports by device number, host ranks by rank, CPUs by
/// NUMA node. The order of siblings in the document plays no part. kConfig: see System::build.
Result<Machine> build_machine(const Document& document, const BuildOptions& options);

/// The same machine, with siblings in the order of their addresses, and without entries that make no node: devices that
/// are only places, adapters without ports.
Document in_order(Document document);

/// "dgx.xml:7: <text>"
Status wrong(const Document& document, FilePosition position, std::string_view text);

}  // namespace tutti::topology
