// SPDX-License-Identifier: Apache-2.0
#include "topology/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "topology/element.h"

namespace tutti::topology {
namespace {

template <class Device, class Devices>
Device* find_in(Devices& devices, BusId bus) {
  for (auto& device : devices) {
    if (device.bus == bus) return &device;
    if (Device* found = find_in<Device>(device.children, bus)) return found;
  }
  return nullptr;
}

bool has_gpu(const std::vector<Pci>& devices) {
  for (const Pci& device : devices) {
    if (device.gpu || has_gpu(device.children)) return true;
  }
  return false;
}

/// Hexadecimal digits up to the separator, which is taken off; false if they are none or too many.
bool take_hex(std::string_view& text, char separator, size_t max_digits, uint64_t& value) {
  const size_t end = separator == 0 ? text.size() : text.find(separator);
  if (end == std::string_view::npos || end == 0 || end > max_digits) return false;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + end, value, 16);
  if (error != std::errc() || rest != text.data() + end) return false;
  text.remove_prefix(std::min(text.size(), end + (separator == 0 ? 0 : 1)));
  return true;
}

/// Folders and devices can be opened like files, and read as empty, without end, or with a wait for a terminal. Pipes
/// are for shells: <(ssh host cat dgx.xml). A missing file fails when it is opened.
Status check_readable(const std::string& file) {
  std::error_code unknown;
  switch (std::filesystem::status(file, unknown).type()) {
    case std::filesystem::file_type::directory:
      return {Code::kConfig, fmt::format("{}: is a folder; name the file in it that describes the machine", file)};
    case std::filesystem::file_type::character:
    case std::filesystem::file_type::block:
      return {Code::kConfig, fmt::format("{}: is a device; name a file that describes the machine", file)};
    default:
      return {};
  }
}

void add_gpus(const std::vector<Pci>& devices, std::vector<BusId>& to) {
  for (const Pci& device : devices) {
    if (device.gpu) to.push_back(device.bus);
    add_gpus(device.children, to);
  }
}

}  // namespace

Result<BusId> BusId::parse(std::string_view text) {
  const Status wrong(Code::kInvalidArgument,
                     fmt::format("'{}' is no PCI address such as 0000:3b:00.0 (domain:bus:device.function)", text));
  std::string_view rest = text;
  uint64_t domain = 0;
  uint64_t bus = 0;
  uint64_t device = 0;
  uint64_t function = 0;
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (colons == 2 && !take_hex(rest, ':', 8, domain)) return wrong;
  if (!take_hex(rest, ':', 2, bus)) return wrong;
  const bool has_function = rest.find('.') != std::string_view::npos;
  if (!take_hex(rest, has_function ? '.' : '\0', 2, device)) return wrong;
  if (has_function && !take_hex(rest, '\0', 1, function)) return wrong;
  // Made-up addresses such as "fffffff:ff:ff.0" use all eight bits of the device.
  return BusId{domain << 20 | bus << 12 | (device & 0xff) << 4 | function};
}

std::string BusId::text() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", value >> 20, value >> 12 & 0xff, value >> 4 & 0xff, value & 0xf);
}

Result<Document> Document::load(const std::string& file) {
  TUTTI_TRY(check_readable(file));
  TUTTI_ASSIGN(const std::string text,
               base::read_text(file, fmt::format("the topology file {}", file), kMaxFileBytes + 1));
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool xml = first != std::string::npos && text[first] == '<';
  return xml ? read_xml(text, file) : read_yaml(text, file);
}

bool Document::is_overlay() const {
  for (const Cpu& cpu : cpus) {
    if (has_gpu(cpu.pci)) return false;
  }
  return true;
}

std::vector<BusId> Document::gpus() const {
  std::vector<BusId> found;
  for (const Cpu& cpu : cpus) add_gpus(cpu.pci, found);
  std::ranges::sort(found);
  return found;
}

const Pci* Document::find(BusId bus) const {
  for (const Cpu& cpu : cpus) {
    if (const Pci* found = find_in<const Pci>(cpu.pci, bus)) return found;
  }
  return nullptr;
}

Pci* Document::find(BusId bus) {
  for (Cpu& cpu : cpus) {
    if (Pci* found = find_in<Pci>(cpu.pci, bus)) return found;
  }
  return nullptr;
}

}  // namespace tutti::topology
