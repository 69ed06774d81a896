// SPDX-License-Identifier: Apache-2.0
// Runs plans on numbers, by the letter of tutti/plugin/plan.h, and checks whether they fulfil their collective. Shares
// no code with the verifier: buffers are arrays that really overlap in place, messages carry numbers, chunks of each
// size class have a length of their own, and the strands of all ranks advance in random order. Steps of two strands
// that touch the same memory are looked for in all pairs of steps.
#pragma once

#include <array>
#include <optional>
#include <queue>
#include <random>
#include <string>

#include "program/plan.h"

namespace tutti::test {

/// One element: a sum modulo 2^64 that tells every set of contributions apart, and floats whose bits tell the order of
/// additions apart.
struct Number {
  uint64_t sum = 0;
  std::array<float, 24> bits = {};
  bool operator==(const Number&) const = default;
};

class Reference {
 public:
  struct Options {
    uint64_t slots = 2;
    bool in_place = false;
    uint32_t loops = 3;
    bool in_parts = true;  ///< messages go in parts, as on the host; false: each message is whole, as on GPUs
  };

  Reference(std::span<const program::Plan> plans, const Options& options, uint64_t seed);

  /// "" if all is right, else the failure. To be called once.
  std::string run();

 private:
  using Plan = program::Plan;
  /// The chunks of a message, one after the other.
  struct Message {
    size_t sender = 0;  ///< number of the step that sends it
    std::vector<Number> numbers;
    std::vector<uint32_t> lengths;
  };
  /// One rank in one loop: input and output are places in `memory`, and overlap in place.
  struct Buffers {
    std::vector<Number> memory;
    std::vector<bool> written;  ///< by output chunk
    std::vector<std::optional<Number>> scratch;
    std::vector<Number> input;  ///< as it was
    size_t input_at = 0;
    size_t output_at = 0;
  };
  struct Strand {
    uint32_t rank = 0;
    size_t first = 0;
    size_t end = 0;
    size_t step = 0;
    uint32_t loop = 0;
    bool second_half = false;
  };

  Number random_number();
  Buffers make_buffers(const Plan& plan);
  std::string malformed(const Plan& plan, const tutti_plan_step& step) const;
  std::string malformed_peers(const Plan& plan, std::span<const tutti_plan_peer> peers, bool ordered, bool chunked,
                              uint64_t chunks) const;
  std::string malformed_strands(const Plan& plan) const;
  std::string race(uint32_t rank) const;
  std::vector<std::pair<size_t, bool>> touched(uint32_t rank, const tutti_plan_step& step) const;
  bool step_once(Strand& strand);
  bool ready(const Plan& plan, const tutti_plan_step& step, bool sends, bool receives) const;
  void run_fold(uint32_t rank, const tutti_plan_step& step);
  void run_sends(uint32_t rank, const tutti_plan_step& step);
  void run_gather(uint32_t rank, const tutti_plan_step& step);
  void check_overlap(uint32_t rank, const tutti_plan_step& step);
  std::optional<Number> read(uint32_t rank, const tutti_plan_step& step, uint32_t chunk);
  void write(uint32_t rank, uint8_t buffer, uint32_t chunk, const Number& number);
  std::vector<uint32_t> list(const Plan& plan, const tutti_plan_step& step, uint8_t buffer, uint32_t first,
                             bool writes) const;
  std::string malformed_lists(const Plan& plan, const tutti_plan_step& step) const;
  std::optional<Number> fold_one(uint32_t rank, const tutti_plan_step& step, uint32_t index,
                                 const std::vector<Message>& messages, uint32_t length);
  void send(uint32_t from, uint32_t to, Message message);
  size_t number_of(uint32_t rank, uint32_t loop, size_t step) const;
  void note_waits(const Strand& strand);
  bool parts_wait_for_wholes() const;
  Message receive(uint32_t from, uint32_t to, const std::vector<uint32_t>& chunks, uint32_t modulus);
  Number fold(const std::vector<Number>& operands) const;
  Number finish(Number number) const;
  Number scaled(Number number) const;
  void check_outputs();
  void check_output(const Plan& plan, uint32_t loop, uint32_t chunk);
  void fail(std::string what);
  size_t place(uint32_t rank, uint8_t buffer, uint32_t chunk) const;
  bool reducing() const { return program::reduces(plans_[0].collective); }

  std::vector<Plan> plans_;
  Options options_;
  std::mt19937_64 random_;
  std::vector<Strand> strands_;                             ///< of all ranks
  std::vector<std::vector<std::vector<bool>>> done_;        ///< by rank, loop and step
  uint32_t loop_ = 0;                                       ///< of the strand that advances
  std::vector<std::vector<Buffers>> buffers_;               ///< by rank and loop
  std::vector<std::vector<std::queue<Message>>> messages_;  ///< by sender and receiver
  std::string failure_;

  // Steps of all ranks and loops have numbers. A step waits for a part of a step, or for all of the step.
  struct Wait {
    size_t step;
    size_t on;
    bool whole;
  };
  /// The history of a connection.
  struct Record {
    size_t sent = 0;                ///< messages
    std::vector<size_t> receivers;  ///< the steps that received the messages
  };
  std::vector<Wait> waits_;
  std::vector<size_t> first_number_;          ///< by rank; one more entry at the end
  std::vector<std::vector<Record>> records_;  ///< by sender and receiver
  size_t now_ = 0;                            ///< the step that advances
};

}  // namespace tutti::test
