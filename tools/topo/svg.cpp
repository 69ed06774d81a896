// SPDX-License-Identifier: Apache-2.0
// Draws a machine, from top to bottom: the bar of the CPU interconnect, a box per NUMA node with its PCI tree, all GPUs
// and adapters on one line, and below it the direct links between GPUs: the bar of the NVSwitch, or arcs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/topo/print.h"

namespace tutti::tools {
namespace {

using namespace topology;

constexpr double kCardWidth = 118, kCardHeight = 46, kGap = 12, kRowHeight = 96, kMargin = 28, kBoxPadding = 16;
constexpr double kBarHeight = 26, kHeaderHeight = 46, kPortHeight = 15;

/// Style and name of wires that are drawn, by type.
constexpr std::array<std::pair<std::string_view, std::string_view>, TUTTI_WIRE_TYPE_COUNT> kWires = {
    {{}, {"nvl", "NVLink, xGMI"}, {"c2c", "chip to chip"}, {"pci", "PCI"}, {"sys", "CPU interconnect"}, {}}};

constexpr const char* kStyle = R"(<style>
svg{font:12px system-ui,sans-serif}.page{fill:#fff}
text{fill:#1d2530;text-anchor:middle}.small{font-size:10px;fill:#5b6675}.left{text-anchor:start}.title{font-size:17px}
.halo{font-size:10px;paint-order:stroke;stroke:#f6f8fa;stroke-width:4px;stroke-linejoin:round}
.outside{stroke:#fff}
.node{fill:#f6f8fa;stroke:#c9d1da}.bold{font-weight:600}
.card{fill:#fff;stroke:#8b98a8}.gpu{fill:#e5f4d6;stroke:#5f9a1f}.nic{fill:#ece5fb;stroke:#7d5bc7}
.place{stroke-dasharray:4 3}.bar{stroke:none}
.wire{fill:none;stroke-linecap:round}
.nvl{stroke:#76a82d}.c2c{stroke:#12928c}.pci{stroke:#7c8da3}.sys{stroke:#d08428}.net{stroke:#8f6fd6}
.bar.nvl{fill:#dcefc4}.bar.sys{fill:#f9e6c9}
@media (prefers-color-scheme:dark){.page{fill:#14181d}text{fill:#e6eaf0}.small{fill:#9aa6b4}
.halo{stroke:#1b2128}.outside{stroke:#14181d}.node{fill:#1b2128;stroke:#3a4450}.card{fill:#242b34;stroke:#6a7787}
.gpu{fill:#24381a;stroke:#7fb83a}.nic{fill:#2d2447;stroke:#a48be0}.bar.nvl{fill:#2d4519}.bar.sys{fill:#4a3516}}
</style>
)";

/// Something with a position: a switch, GPU or adapter.
struct Card {
  double x = 0, y = 0, height = kCardHeight;  ///< x: of its middle
  const Pci* pci = nullptr;
  double gbs = 0;  ///< bandwidth of the edge to its parent
  std::string style, title, subtitle;
  std::vector<std::string> ports;
  std::vector<Card> below;
};

struct Box {
  double x = 0, width = 0;
  const Cpu* cpu = nullptr;
  std::vector<Card> cards;
};

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char one : text) {
    switch (one) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += one;
    }
  }
  return safe;
}

double stroke(double gbs) {
  return std::clamp(0.9 + 0.45 * std::sqrt(gbs), 1.4, 10.0);
}

class Drawing {
 public:
  explicit Drawing(const Machine& machine) : machine_(machine) {}

  std::string text() {
    for (const Cpu& cpu : machine_.document.cpus) place_box(cpu);
    for (const auto& link : machine_.system ? machine_.system->links() : std::span<const tutti_system_link>()) {
      if (link.type == TUTTI_WIRE_SYS)
        interconnect_ = std::min(interconnect_ == 0 ? link.gbs : interconnect_, link.gbs);
    }
    if (interconnect_ > 0) top_ += kBarHeight + 22;
    leaf_y_ = top_ + kHeaderHeight + kRowHeight * std::max(depth_ - 1, 0);
    double bottom = leaf_y_;
    for (Box& box : boxes_) {
      for (Card& card : box.cards) bottom = std::max(bottom, place_rows(card, 0));
    }
    bottom += kBoxPadding;
    for (const Box& box : boxes_) draw_box(box, bottom);
    double y = draw_peers(bottom + 34);
    draw_interconnect();
    y = draw_legend(y + 26);
    const double width = std::max(right_ - kGap + kMargin, 520.0);
    return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" )"
                       R"(width="{0:.0f}" height="{1:.0f}" role="img">)"
                       "\n{2}<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n<text class=\"title left\" "
                       "x=\"{3}\" y=\"32\">{4}</text>\n{5}{6}{7}</svg>\n",
                       width, y, kStyle, kMargin, escaped(title()), back_, wires_, front_);
  }

 private:
  std::string title() const {
    const auto& document = machine_.document;
    return document.name.empty() ? document.source : document.name + " · " + document.source;
  }

  void place_box(const Cpu& cpu);
  Card card_of(const Pci& pci, std::optional<uint32_t> parent, int depth);
  Card adapter_of(const Nic& nic, std::optional<uint32_t> parent);
  std::string port_text(const Net& net) const;
  double place_columns(Card& card, double x);
  double place_rows(Card& card, int depth);
  void draw_box(const Box& box, double bottom);
  void draw_card(const Card& card, double parent_x, double parent_y);
  void draw_c2c(const Card& card);
  double draw_peers(double y);
  double draw_switch(double y);
  double draw_arcs(double y);
  void draw_interconnect();
  double draw_legend(double y);
  void label(double x, double y, double gbs, std::string_view style);

  const Machine& machine_;
  std::vector<Box> boxes_;
  std::map<uint32_t, const Card*> gpus_;  // by node
  std::set<uint32_t> types_;              // types of the links that are drawn
  std::string back_, wires_, front_;
  double top_ = 50, right_ = kMargin, leaf_y_ = 0;
  double head_x_ = 0;        // position in the current box
  double interconnect_ = 0;  // GB/s; 0: none to draw
  int depth_ = 1;
};

void Drawing::label(double x, double y, double gbs, std::string_view style) {
  if (gbs > 0) front_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{:.4g}</text>\n", style, x, y, gbs);
}

std::string Drawing::port_text(const Net& net) const {
  const std::string name = net.name.empty() ? "port" : net.name;
  return net.mbps > 0 ? fmt::format("{} · {:.4g} GB/s", name, net.mbps / 8e3) : name;
}

Card Drawing::adapter_of(const Nic& nic, std::optional<uint32_t> parent) {
  Card card;
  card.style = "nic";
  card.title = "virtual NIC";
  for (const Net& net : nic.nets) {
    card.ports.push_back(port_text(net));
    card.gbs = std::max(card.gbs, machine_.gbs(parent, machine_.node(net)));
  }
  return card;
}

Card Drawing::card_of(const Pci& pci, std::optional<uint32_t> parent, int depth) {
  const auto node = machine_.node(pci);
  Card card;
  card.pci = &pci;
  card.gbs = machine_.gbs(parent, node);
  card.subtitle = pci.bus.text();
  if (pci.gpu) {
    card.style = "gpu";
    const std::string chip = chip_text(*pci.gpu);
    card.title = gpu_text(pci) + (chip.empty() ? "" : " · " + chip.substr(0, chip.find(" (")));
  } else if (!pci.nics.empty()) {
    card.style = "nic";
    card.title = "NIC";
    for (const Nic& nic : pci.nics) {
      for (const Net& net : nic.nets) card.ports.push_back(port_text(net));
    }
  } else {
    const uint32_t base = pci.pci_class >> 16;
    card.style = base == 0x03 ? "gpu place" : base == 0x02 ? "nic place" : pci.children.empty() ? "place" : "";
    card.title = base == 0x03 ? "GPU here" : base == 0x02 ? "NIC here" : pci.children.empty() ? "place" : "switch";
  }
  for (const Pci& child : pci.children) card.below.push_back(card_of(child, node, depth + 1));
  depth_ = std::max(depth_, depth);
  return card;
}

void Drawing::place_box(const Cpu& cpu) {
  Box box;
  box.cpu = &cpu;
  box.x = right_;
  const auto node = machine_.node(cpu);
  for (const Pci& pci : cpu.pci) box.cards.push_back(card_of(pci, node, 1));
  for (const Nic& nic : cpu.nics) box.cards.push_back(adapter_of(nic, node));
  double x = box.x + kBoxPadding;
  for (Card& card : box.cards) x = place_columns(card, x);
  box.width = std::max(x - kGap + kBoxPadding - box.x, 200.0);
  right_ = box.x + box.width + kGap * 2;
  boxes_.push_back(std::move(box));
}

/// Puts a card over the middle of the cards below it; returns the position of the next card.
double Drawing::place_columns(Card& card, double x) {
  double next = x;
  for (Card& child : card.below) next = place_columns(child, next);
  next = std::max(next, x + kCardWidth + kGap);
  card.x = (x + next - kGap) / 2;
  return next;
}

/// Cards with cards below them stand in the row of their depth, all remaining cards in the last row. Returns the lowest
/// end.
double Drawing::place_rows(Card& card, int depth) {
  card.height = card.subtitle.empty() ? 26 : kCardHeight - (card.below.empty() ? 0 : 6);
  card.height += kPortHeight * static_cast<double>(card.ports.size());
  card.y = card.below.empty() ? leaf_y_ + 30 : top_ + kHeaderHeight + 30 + kRowHeight * depth;
  double end = card.y + card.height;
  for (Card& child : card.below) end = std::max(end, place_rows(child, depth + 1));
  return end;
}

void Drawing::draw_box(const Box& box, double bottom) {
  back_ += fmt::format(R"(<rect class="node" x="{:.1f}" y="{}" width="{:.1f}" height="{:.1f}" rx="10"/>)"
                       "\n",
                       box.x, top_, box.width, bottom - top_);
  const double middle = box.x + box.width / 2;
  front_ += fmt::format(
      "<text class=\"bold\" x=\"{0:.1f}\" y=\"{1}\">{2}</text>\n"
      "<text class=\"small\" x=\"{0:.1f}\" y=\"{3}\">{4}</text>\n",
      middle, top_ + 20, cpu_text(*box.cpu), top_ + 35, escaped(processors_text(*box.cpu)));
  head_x_ = middle;
  for (const Card& card : box.cards) draw_card(card, middle, top_ + kHeaderHeight - 4);
}

void Drawing::draw_card(const Card& card, double parent_x, double parent_y) {
  const double bend = (card.y - parent_y) / 2;
  wires_ += fmt::format(R"(<path class="wire pci" stroke-width="{:.1f}" d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} )"
                        R"({:.1f} {:.1f}"/>)"
                        "\n",
                        stroke(card.gbs), parent_x, parent_y, parent_x, parent_y + bend, card.x, card.y - bend, card.x,
                        card.y);
  types_.insert(TUTTI_WIRE_PCI);
  label(card.x, card.y - 8, card.gbs, "halo");
  if (card.pci != nullptr && card.pci->gpu && card.pci->gpu->c2c) draw_c2c(card);
  front_ += fmt::format(R"(<rect class="card {}" x="{:.1f}" y="{:.1f}" width="{}" height="{:.1f}" rx="7"/>)"
                        "\n",
                        card.style, card.x - kCardWidth / 2, card.y, kCardWidth, card.height);
  double y = card.y + 18;
  const auto line = [&](std::string_view style, std::string_view text) {
    if (!text.empty()) {
      front_ +=
          fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, card.x, y, escaped(text));
    }
    y += kPortHeight;
  };
  line("bold", card.title);
  if (!card.subtitle.empty()) line("small", card.subtitle);
  for (const std::string& port : card.ports) line("small", port);
  if (const auto node = card.pci == nullptr ? std::nullopt : machine_.node(*card.pci); node) gpus_[*node] = &card;
  for (const Card& child : card.below) draw_card(child, card.x, card.y + card.height);
}

/// Beside the PCI wire, from the box's head.
void Drawing::draw_c2c(const Card& card) {
  const C2c& c2c = *card.pci->gpu->c2c;
  const double gbs = c2c.gbs * c2c.count;
  const double x = card.x + kCardWidth / 3;
  wires_ += fmt::format(R"(<path class="wire c2c" stroke-width="{:.1f}" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>)"
                        "\n",
                        stroke(gbs), head_x_ + 20, top_ + kHeaderHeight - 4, x, card.y);
  types_.insert(TUTTI_WIRE_C2C);
  label(x, card.y - 8, gbs, "halo");
}

/// Draws the direct links between GPUs; returns the lowest end.
double Drawing::draw_peers(double y) {
  if (!machine_.system) return y - 34;
  const auto links = machine_.system->links();
  if (std::ranges::none_of(links, [](const auto& link) { return link.type == TUTTI_WIRE_NVL; })) return y - 34;
  types_.insert(TUTTI_WIRE_NVL);
  return machine_.system->nodes_of(TUTTI_NODE_NVS).empty() ? draw_arcs(y) : draw_switch(y);
}

double Drawing::draw_switch(double y) {
  double left = right_;
  double right = 0;
  for (const tutti_system_link& link : machine_.system->links()) {
    const auto gpu = gpus_.find(link.from);
    if (gpu == gpus_.end() || machine_.system->nodes()[link.to].type != TUTTI_NODE_NVS) continue;
    const Card& card = *gpu->second;
    left = std::min(left, card.x - kCardWidth / 2);
    right = std::max(right, card.x + kCardWidth / 2);
    wires_ += fmt::format(R"(<path class="wire nvl" stroke-width="{:.1f}" d="M{:.1f} {:.1f}V{:.1f}"/>)"
                          "\n",
                          stroke(link.gbs), card.x, card.y + card.height, y);
    label(card.x + 24, y - 8, link.gbs, "halo outside");
  }
  front_ += fmt::format(R"(<rect class="bar nvl" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="6"/>)"
                        "\n<text class=\"bold\" x=\"{:.1f}\" y=\"{:.1f}\">NVSwitch</text>\n",
                        left, y, right - left, kBarHeight, (left + right) / 2, y + 17);
  return y + kBarHeight;
}

/// An arc per pair, the deeper the farther apart.
double Drawing::draw_arcs(double y) {
  double lowest = y;
  const auto& system = *machine_.system;
  for (const tutti_system_link& link : system.links()) {
    if (link.type != TUTTI_WIRE_NVL || link.from > link.to) continue;
    const auto from = gpus_.find(link.from);
    const auto to = gpus_.find(link.to);
    if (from == gpus_.end() || to == gpus_.end()) continue;
    const Card& a = *from->second;
    const Card& b = *to->second;
    const double start = a.y + a.height;
    const double sag = 30 + std::abs(a.x - b.x) * 0.16;
    const double control = y + sag * 4 / 3 - 34;  // a cubic reaches 3/4 of its control points' depth
    wires_ += fmt::format(R"(<path class="wire nvl" stroke-width="{:.1f}" d="M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} )"
                          R"({:.1f} {:.1f} {:.1f}"/>)"
                          "\n",
                          stroke(link.gbs), a.x, start, a.x, control, b.x, control, b.x, b.y + b.height);
    const double depth = start / 4 + control * 3 / 4;
    label((a.x + b.x) / 2, depth + 3, link.gbs, "halo outside");
    lowest = std::max(lowest, depth + 12);
  }
  return lowest;
}

/// One bar for all links between CPUs, with the slowest speed.
void Drawing::draw_interconnect() {
  if (interconnect_ == 0) return;
  types_.insert(TUTTI_WIRE_SYS);
  const double y = top_ - kBarHeight - 22;
  const double left = boxes_.front().x;
  const double right = boxes_.back().x + boxes_.back().width;
  for (const Box& box : boxes_) {
    wires_ += fmt::format(R"(<path class="wire sys" stroke-width="{:.1f}" d="M{:.1f} {}V{}"/>)"
                          "\n",
                          stroke(interconnect_), box.x + box.width / 2, y + kBarHeight, top_);
  }
  front_ += fmt::format(R"(<rect class="bar sys" x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="6"/>)"
                        "\n<text class=\"bold\" x=\"{:.1f}\" y=\"{}\">CPU interconnect · {:.4g} GB/s</text>\n",
                        left, y, right - left, kBarHeight, (left + right) / 2, y + 17, interconnect_);
}

double Drawing::draw_legend(double y) {
  double x = kMargin;
  for (const uint32_t type : types_) {
    const std::string_view name = kWires[type].second;
    front_ += fmt::format(R"(<path class="wire {}" stroke-width="4" d="M{:.1f} {:.1f}h26"/>)"
                          "<text class=\"small left\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                          kWires[type].first, x, y, x + 34, y + 4, name);
    x += 50 + 7.0 * static_cast<double>(name.size());
  }
  front_ += fmt::format(
      "<text class=\"small left\" x=\"{:.1f}\" y=\"{:.1f}\">numbers are GB/s in one direction; wider "
      "is faster</text>\n",
      x, y + 4);
  return y + 28;
}

}  // namespace

std::string svg(const Machine& machine) {
  return Drawing(machine).text();
}

}  // namespace tutti::tools
