// SPDX-License-Identifier: Apache-2.0
#include "tools/plan/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "program/describe.h"
#include "program/repeat.h"
#include "program/verify/run.h"

namespace tutti::tools {
namespace {

using program::Plan;

constexpr uint32_t kMaxRanks = 256;
constexpr uint64_t kMaxMessages = 20'000;
constexpr uint32_t kLeft = 70;
constexpr uint32_t kTop = 50;
constexpr uint32_t kStep = 44;  // width of a unit of time
constexpr uint32_t kRow = 36;   // height of a rank
constexpr uint32_t kBox = 16;

/// The hue of a chunk. Neighbours differ: the golden angle goes around the circle of colours.
std::string colour(uint32_t chunk) {
  return fmt::format("hsl({},70%,45%)", chunk * 137 % 360);
}

/// Text for XML.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

/// The chunk that a step is about: of its own source, else of its destination, else of its first peer.
uint32_t chunk_of(const Plan& plan, const tutti_plan_step& step) {
  if (step.source != TUTTI_BUFFER_NONE) return step.source_chunk;
  if (step.destination != TUTTI_BUFFER_NONE) return step.destination_chunk;
  const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0;
  return gathers && step.recv_count > 0 ? plan.recv(step)[0].chunk : step.source_chunk;
}

/// Runs the plans, and gives each step and each message its time.
class Picture : public program::Run {
 public:
  Picture(std::span<const Plan> plans, const program::Connections& connections)
      : Run(plans, connections, kUnlimited, 1), clocks_(plans.size(), 0), messages_(connections.size()) {}

  std::string svg(const std::string& title) const {
    const uint32_t end = clocks_.empty() ? 0 : *std::max_element(clocks_.begin(), clocks_.end());
    const uint32_t width = kLeft + (end + 1) * kStep;
    const auto height = kTop + static_cast<uint32_t>(plans_.size()) * kRow + kRow / 2;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
        "<text x=\"8\" y=\"18\" font-size=\"13\">{2}</text>\n",
        width, height, escaped(title));
    for (uint32_t rank = 0; rank < plans_.size(); ++rank) {
      text += fmt::format(
          "<text x=\"8\" y=\"{}\">rank {}</text>\n<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" "
          "stroke=\"#ddd\"/>\n",
          y_of(rank) + 4, rank, kLeft, y_of(rank), width, y_of(rank));
    }
    return text + arrows_ + boxes_ + "</svg>\n";
  }

 protected:
  Status on_send(uint32_t rank, uint32_t index) override {
    const Plan& plan = plans_[rank];
    const tutti_plan_step& step = plan.steps[index];
    const bool exchanges = (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0;
    const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
    if (!exchanges) receive(rank, step, clocks_[rank]);
    const uint32_t time = clocks_[rank];
    add_box(rank, index, time);
    for (uint32_t i = step.send_begin; i < step.send_begin + uint32_t{step.send_count}; ++i) {
      const uint32_t chunk = scatters ? plan.peers[i].chunk : chunk_of(plan, step);
      messages_[connections_.outgoing(rank, i)].push_back({time, chunk});
    }
    if (!exchanges || step.recv_count == 0) ++clocks_[rank];
    return {};
  }
  Status on_gather(uint32_t rank, uint32_t index) override {
    const tutti_plan_step& step = plans_[rank].steps[index];
    if (step.recv_count == 0) return {};
    uint32_t time = clocks_[rank] + 1;
    receive(rank, step, time);
    clocks_[rank] = time;
    return {};
  }

 private:
  struct Message {
    uint32_t sent;
    uint32_t chunk;
  };
  static uint32_t x_of(uint32_t time) { return kLeft + time * kStep + kStep / 2; }
  static uint32_t y_of(uint32_t rank) { return kTop + rank * kRow + kRow / 2; }

  /// Draws the messages of a step, and moves `time` to the arrival of the last.
  void receive(uint32_t rank, const tutti_plan_step& step, uint32_t& time) {
    std::vector<std::pair<uint32_t, Message>> arrived;
    for (uint32_t i = step.recv_begin; i < step.recv_begin + uint32_t{step.recv_count}; ++i) {
      auto& queue = messages_[connections_.incoming(rank, i)];
      arrived.emplace_back(plans_[rank].peers[i].rank, queue.front());
      time = std::max(time, queue.front().sent + 1);
      queue.pop_front();
    }
    for (const auto& [sender, message] : arrived) {
      arrows_ += fmt::format(
          "<path d=\"M{} {}L{} {}\" stroke=\"{}\" stroke-width=\"1.5\" fill=\"none\">"
          "<title>rank {} to rank {}, chunk {}</title></path>\n"
          "<circle cx=\"{}\" cy=\"{}\" r=\"3\" fill=\"{}\"/>\n",
          x_of(message.sent) + kBox / 2, y_of(sender), x_of(time) - kBox / 2, y_of(rank), colour(message.chunk), sender,
          rank, message.chunk, x_of(time) - kBox / 2, y_of(rank), colour(message.chunk));
    }
  }

  void add_box(uint32_t rank, uint32_t index, uint32_t time) {
    const Plan& plan = plans_[rank];
    const tutti_plan_step& step = plan.steps[index];
    const uint32_t chunk = chunk_of(plan, step);
    const bool is_final = (step.flags & TUTTI_STEP_FINAL) != 0;
    boxes_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\"{}>"
        "<title>rank {} step {}: {}</title></rect>\n<text x=\"{}\" y=\"{}\" fill=\"white\" "
        "text-anchor=\"middle\" font-size=\"9\">{}</text>\n",
        x_of(time) - kBox / 2, y_of(rank) - kBox / 2, kBox, kBox, colour(chunk),
        is_final ? " stroke=\"black\" stroke-width=\"2\"" : "", rank, index, program::primitive_name(plan, step),
        x_of(time), y_of(rank) + 3, chunk);
  }

  std::vector<uint32_t> clocks_;  ///< by rank: the time at which its next step can begin
  std::vector<std::deque<Message>> messages_;
  std::string arrows_;
  std::string boxes_;
};

}  // namespace

Result<std::string> draw(const program::PlanFile& file) {
  const auto too_large = [](std::string_view what, uint64_t most) {
    return Status(Code::kUnsupported, fmt::format("a picture shows up to {} {}", most, what));
  };
  if (file.plans.size() > kMaxRanks) return too_large("ranks", kMaxRanks);
  program::Extent extent;
  for (const Plan& plan : file.plans) extent.add(plan);
  if (extent.messages > kMaxMessages || extent.steps > kMaxMessages) {
    return too_large("steps, or sends and receives", kMaxMessages);
  }
  TUTTI_TRY(program::verify(file.plans));
  std::vector<Plan> plans;
  for (const Plan& plan : file.plans) {
    TUTTI_ASSIGN(plans.emplace_back(), program::unroll(plan));
  }
  const program::Connections connections(plans);
  Picture picture(plans, connections);
  TUTTI_TRY(picture.finish());
  const Plan& first = plans.front();
  return picture.svg(fmt::format("{}{}{}: {} over {} ranks, {} chunk(s) per block", file.algorithm,
                                 file.variant.empty() ? "" : "/", file.variant, to_string(first.collective),
                                 first.rank_count, first.chunks));
}

}  // namespace tutti::tools
