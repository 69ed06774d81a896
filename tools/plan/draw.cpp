// SPDX-License-Identifier: Apache-2.0
#include "tools/plan/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "program/describe.h"
#include "program/passes/order_strands.h"
#include "program/repeat.h"
#include "program/verify/prove.h"
#include "program/verify/run.h"

namespace tutti::tools {
namespace {

using program::Plan;

constexpr uint32_t kMaxRows = 256;
constexpr uint64_t kMaxDrawn = 20'000;        // steps, or sends and receives, of the ranks in the picture
constexpr uint64_t kMaxFollowed = 4'000'000;  // the same, of all ranks
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

/// The chunks of a step or a message.
struct Chunks {
  uint32_t first;
  uint32_t count;
  std::string text;  ///< "chunk 2", "chunks 2-5"
};

Chunks chunks_at(const Plan& plan, uint8_t buffer, uint32_t first, uint32_t stride, uint32_t count) {
  return {first, count,
          fmt::format("chunk{} {}", count > 1 ? "s" : "", program::chunks_text(plan, buffer, first, stride, count))};
}

/// The chunks that a step is about: of its own source, else of its destination, else of its first peer.
Chunks chunks_of(const Plan& plan, const tutti_plan_step& step) {
  const tutti_plan_range range = plan.range(step);
  const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0;
  if (step.source == TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) {
    return chunks_at(plan, step.destination, step.destination_chunk, range.destination_stride, range.count);
  }
  if (step.source == TUTTI_BUFFER_NONE && gathers && step.recv_count > 0) {
    return chunks_at(plan, program::gather_buffer_of(step), plan.recv(step)[0].chunk, range.destination_stride,
                     range.count);
  }
  return chunks_at(plan, step.source, step.source_chunk, range.source_stride, range.count);
}

/// Runs the plans, and gives each step and each message its time.
class Picture : public program::Run {
 public:
  /// `listed` are the plans without strands. They hold at least the first view.units steps of each rank: a step takes a
  /// unit of time or more. `plans` are the same with their strands.
  Picture(const std::vector<Plan>& plans, const program::OneStrandSet& listed, const program::Connections& connections,
          const View& view)
      : Run(listed.plans, connections, kUnlimited, 1),
        with_strands_(plans),
        view_(view),
        messages_(connections.size()) {
    if (!listed.numbers.empty()) number_by(listed.numbers);
    for (const Plan& plan : plans) {
      clocks_.emplace_back(std::max<size_t>(1, plan.strands.size()), 0);
      ends_.emplace_back(plan.waits.empty() ? 0 : plan.steps.size(), 0);
      rows_before_.push_back(rows_);
      rows_ += shows(plan.rank) ? static_cast<uint32_t>(clocks_.back().size()) : 0;
    }
  }

  std::string svg(const std::string& title) const {
    const uint32_t width = kLeft + (end_ + 1) * kStep;
    const uint32_t height = kTop + rows_ * kRow + kRow / 2;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
        "<text x=\"8\" y=\"18\" font-size=\"13\">{2}</text>\n",
        width, height, escaped(title));
    for (uint32_t rank = view_.first_rank; shows(rank); ++rank) {
      for (uint32_t strand = 0; strand < clocks_[rank].size(); ++strand) {
        const uint32_t y = y_of({rank, strand});
        text += fmt::format(
            "<text x=\"8\" y=\"{}\">{} {}</text>\n<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" "
            "stroke=\"#ddd\"/>\n",
            y + 4, strand == 0 ? "rank" : "strand", strand == 0 ? rank : strand, kLeft, y, width, y);
      }
    }
    return text + arrows_ + boxes_ + "</svg>\n";
  }

 protected:
  Status on_send(uint32_t rank, uint32_t index) override {
    const Plan& plan = plans_[rank];
    const tutti_plan_step& step = plan.steps[index];
    const bool exchanges = (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0;
    const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
    const Row row = row_of(rank, index);
    uint32_t& clock = clocks_[rank][row.strand];
    await(row, number(rank, index), clock);
    if (!exchanges) receive(row, step, clock);
    const uint32_t time = clock;
    const Chunks chunks = chunks_of(plan, step);
    add_box(row, index, time, chunks);
    for (uint32_t i = step.send_begin; i < step.send_begin + uint32_t{step.send_count}; ++i) {
      const tutti_plan_range range = plan.range(step);
      messages_[connections_.outgoing(rank, i)].push_back(
          {row, time,
           scatters ? chunks_at(plan, step.source, plan.peers[i].chunk, range.source_stride, range.count) : chunks});
    }
    if (!exchanges || step.recv_count == 0) end(row, number(rank, index), time + 1);
    return {};
  }
  Status on_gather(uint32_t rank, uint32_t index) override {
    const tutti_plan_step& step = plans_[rank].steps[index];
    if (step.recv_count == 0) return {};
    const Row row = row_of(rank, index);
    uint32_t time = clocks_[rank][row.strand] + 1;
    receive(row, step, time);
    end(row, number(rank, index), time);
    return {};
  }

 private:
  /// A strand of a rank.
  struct Row {
    uint32_t rank;
    uint32_t strand;
  };
  struct Message {
    Row sender;
    uint32_t sent;
    Chunks chunks;
  };
  Row row_of(uint32_t rank, uint32_t index) const { return {rank, with_strands_[rank].strand_of(number(rank, index))}; }
  bool shows(uint32_t rank) const { return rank >= view_.first_rank && rank - view_.first_rank < view_.rows; }
  static uint32_t x_of(uint32_t time) { return kLeft + time * kStep + kStep / 2; }
  /// The middle of the row. Ranks that the view leaves out are at the edge above or below.
  uint32_t y_of(const Row& row) const {
    if (row.rank < view_.first_rank) return kTop - kRow / 2;
    return kTop + rows_before_[row.rank] * kRow + (shows(row.rank) ? row.strand * kRow + kRow / 2 : 0);
  }

  /// Moves `time` to the end of the last step that the step waits for, and draws the waits.
  void await(const Row& row, uint32_t step, uint32_t& time) {
    const auto waits = with_strands_[row.rank].waits_of(step);
    for (const tutti_plan_wait& wait : waits) time = std::max(time, ends_[row.rank][wait.after]);
    if (time >= view_.units || !shows(row.rank)) return;
    for (const tutti_plan_wait& wait : waits) {
      const uint32_t strand = with_strands_[row.rank].strand_of(wait.after);
      arrows_ += fmt::format(
          "<path class=\"wait\" d=\"M{} {}L{} {}\" stroke=\"#888\" stroke-dasharray=\"4 3\" fill=\"none\">"
          "<title>rank {} step {} waits for step {}</title></path>\n",
          x_of(ends_[row.rank][wait.after] - 1) + kBox / 2, y_of({row.rank, strand}), x_of(time) - kBox / 2, y_of(row),
          row.rank, step, wait.after);
    }
  }

  void end(const Row& row, uint32_t step, uint32_t time) {
    clocks_[row.rank][row.strand] = time;
    if (!ends_[row.rank].empty()) ends_[row.rank][step] = time;
  }

  /// Draws the messages of a step, and moves `time` to the arrival of the last.
  void receive(const Row& row, const tutti_plan_step& step, uint32_t& time) {
    std::vector<Message> arrived;
    for (uint32_t i = step.recv_begin; i < step.recv_begin + uint32_t{step.recv_count}; ++i) {
      auto& queue = messages_[connections_.incoming(row.rank, i)];
      time = std::max(time, queue.front().sent + 1);
      arrived.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    for (const Message& message : arrived) add_arrow(message.sender, row, message, time);
  }

  void add_arrow(const Row& sender, const Row& row, const Message& message, uint32_t time) {
    if (time >= view_.units || (!shows(sender.rank) && !shows(row.rank))) return;
    end_ = std::max(end_, time);
    const std::string hue = colour(message.chunks.first);
    const uint32_t x = x_of(time) - kBox / 2;
    arrows_ += fmt::format(
        "<path class=\"message\" d=\"M{} {}L{} {}\" stroke=\"{}\" stroke-width=\"{}\" fill=\"none\">"
        "<title>rank {} to rank {}, {}</title></path>\n<circle cx=\"{}\" cy=\"{}\" r=\"3\" fill=\"{}\"/>\n",
        x_of(message.sent) + kBox / 2, y_of(sender), x, y_of(row), hue, message.chunks.count > 1 ? "3" : "1.5",
        sender.rank, row.rank, message.chunks.text, x, y_of(row), hue);
  }

  void add_box(const Row& row, uint32_t index, uint32_t time, const Chunks& chunks) {
    if (time >= view_.units || !shows(row.rank)) return;
    end_ = std::max(end_, time + 1);
    const Plan& plan = plans_[row.rank];
    const tutti_plan_step& step = plan.steps[index];
    const bool is_final = (step.flags & TUTTI_STEP_FINAL) != 0;
    boxes_ += fmt::format(
        "<rect class=\"step\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\"{}>"
        "<title>rank {} step {}: {} {}{}</title></rect>\n<text x=\"{}\" y=\"{}\" fill=\"white\" "
        "text-anchor=\"middle\" font-size=\"9\">{}{}</text>\n",
        x_of(time) - kBox / 2, y_of(row) - kBox / 2, kBox, kBox, colour(chunks.first),
        is_final ? " stroke=\"black\" stroke-width=\"2\"" : "", row.rank, number(row.rank, index),
        program::primitive_name(plan, step), escaped(program::step_text(plan, step)), is_final ? ", final" : "",
        x_of(time), y_of(row) + 3, chunks.first, chunks.count > 1 ? "+" : "");
  }

  const std::vector<Plan>& with_strands_;
  View view_;
  uint32_t end_ = 0;                           ///< the last unit of time that something is drawn at
  uint32_t rows_ = 0;                          ///< of all ranks in the view
  std::vector<uint32_t> rows_before_;          ///< by rank: rows of the ranks before it in the view
  std::vector<std::vector<uint32_t>> clocks_;  ///< by rank and strand: the time at which its next step can begin
  std::vector<std::vector<uint32_t>> ends_;    ///< by rank and step: the time of its end, if steps wait for steps
  std::vector<std::deque<Message>> messages_;
  std::string arrows_;
  std::string boxes_;
};

/// The view with the numbers that 0 stands for.
Result<View> complete(View view, const std::vector<Plan>& plans) {
  const auto ranks = static_cast<uint32_t>(plans.size());
  if (view.first_rank >= ranks) {
    return Status(Code::kInvalidArgument, fmt::format("there is no rank {}, only 0 to {}", view.first_rank, ranks - 1));
  }
  const uint32_t rest = ranks - view.first_rank;
  view.rows = view.rows == 0 ? rest : std::min(view.rows, rest);
  size_t rows = 0;
  for (uint32_t i = 0; i < view.rows; ++i) rows += std::max<size_t>(1, plans[view.first_rank + i].strands.size());
  if (rows > kMaxRows) {
    return Status(Code::kUnsupported, fmt::format("a picture shows up to {} {}, and these are {}; --first-rank and "
                                                  "--rows choose some",
                                                  kMaxRows, rows == view.rows ? "ranks" : "strands of ranks", rows));
  }
  if (view.units == 0) view.units = ~uint32_t{0};
  return view;
}

/// The steps of all ranks that begin in the view's time, or more, without repeats. Plans with strands are whole.
Result<std::vector<Plan>> cut(const std::vector<Plan>& plans, const View& view) {
  uint64_t followed = 0;
  uint64_t drawn = 0;
  std::vector<Plan> begun;
  const bool any_strands = program::any_strands(plans);
  for (const Plan& plan : plans) {
    const uint64_t all = program::unrolled_steps(plan);
    const uint64_t steps = any_strands ? all : std::min<uint64_t>(view.units, all);
    const bool shown = plan.rank >= view.first_rank && plan.rank - view.first_rank < view.rows;
    followed += steps;
    drawn += shown ? steps : 0;
    if (followed <= kMaxFollowed && drawn <= kMaxDrawn) {
      TUTTI_ASSIGN(begun.emplace_back(), steps == all ? program::unroll(plan) : program::unroll_first(plan, steps));
      for (const tutti_plan_step& step : begun.back().steps) {
        const uint64_t messages = uint64_t{step.recv_count} + step.send_count;
        followed += messages;
        drawn += shown ? messages : 0;
      }
    }
    if (followed > kMaxFollowed || drawn > kMaxDrawn) {
      return Status(Code::kUnsupported, fmt::format("a picture shows up to {} steps, sends and receives, and follows "
                                                    "up to {} of all ranks; --time and --rows choose some",
                                                    kMaxDrawn, kMaxFollowed));
    }
  }
  return begun;
}

std::string title_of(const program::PlanFile& file, const View& view) {
  const Plan& first = file.plans.front();
  std::string title =
      fmt::format("{}{}{}: {} over {} ranks, {} chunk(s) per block", file.algorithm, file.variant.empty() ? "" : "/",
                  file.variant, to_string(first.collective), first.rank_count, first.chunks);
  if (view.rows < file.plans.size()) {
    title += fmt::format(", ranks {} to {}", view.first_rank, view.first_rank + view.rows - 1);
  }
  if (view.units != ~uint32_t{0}) title += fmt::format(", the first {} units of time", view.units);
  return title;
}

}  // namespace

Result<std::string> draw(const program::PlanFile& file, const View& asked) {
  TUTTI_ASSIGN(const View view, complete(asked, file.plans));
  TUTTI_ASSIGN(const std::vector<Plan> plans, cut(file.plans, view));
  program::OneStrandSet listed{plans, {}};
  if (program::any_strands(plans)) {
    TUTTI_ASSIGN(listed, program::in_one_strand(plans));
  }
  const program::Connections connections(listed.plans);
  Picture picture(plans, listed, connections, view);
  // Where plans are cut, ranks wait for messages that no rank sends, and messages are left over.
  static_cast<void>(picture.finish());
  return picture.svg(title_of(file, view));
}

}  // namespace tutti::tools
