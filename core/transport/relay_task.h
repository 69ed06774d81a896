// SPDX-License-Identifier: Apache-2.0
// What relays of all kinds have in common: the two network connections between a CTA of this rank's GPU and the same
// CTA of a GPU on a different host, and the mailboxes in which both GPUs say which messages they are done with.
#pragma once

#include <memory>
#include <string>

#include "progress/engine.h"
#include "transport/channel.h"
#include "transport/gpu_signals.h"
#include "transport/link_state.h"

namespace tutti::transport {

/// Threads: progress() and idle() as Task demands; attach() by the task that accepts. All other functions belong to
/// progress().
class RelayTask : public progress::Task, public Awaiter {
 public:
  /// `at`, `of`: as in GpuSignals.
  RelayTask(const Net& net, const Key& key, tutti_cuda_mailbox* at, tutti_cuda_mailbox* of);
  /// On the engine's thread; the polling thread then takes the channel.
  Status attach(std::unique_ptr<Channel> channel) final;
  Result<bool> progress() final;
  bool idle() const final;
  bool polls() const final { return true; }

 protected:
  /// Closes both connections. The destructor of a relay calls it first: the network then touches no buffer any more.
  void close();
  /// The connection on which this rank sends, or receives, has been made: registers memory with it.
  virtual Status open_out() = 0;
  virtual Status open_in() = 0;
  /// A round of a direction, whose connection stands. True if any data moved.
  virtual Result<bool> send() = 0;
  virtual Result<bool> receive() = 0;
  /// Whether all that the GPU has filled so far is sent.
  virtual bool all_sent() const = 0;

  /// True if a request to send is done, and so free.
  Result<bool> finish(void*& request);

  GpuSignals gpu_;
  LinkState out_state_, in_state_;
  std::unique_ptr<Channel> out_, in_;  // null: the connection does not stand yet

 private:
  Result<bool> send_if_connected();
  Result<bool> receive_if_connected();
  /// Runs `step` of a direction, unless the direction's connection has broken.
  template <class Step>
  Result<bool> guard(Breakage& breakage, LinkState& state, bool sends, Step&& step);

  const Net& net_;
  const Key key_;
  std::unique_ptr<Dial> dial_;
  ChannelHandOver attached_;
  Breakage out_breakage_, in_breakage_;
};

}  // namespace tutti::transport
