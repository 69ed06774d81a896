// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_backend.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::test {
namespace {

using backend::Call;

constexpr std::chrono::seconds kPatience{60};
constexpr uint64_t kRegistration = 7;

std::string name_of(const Call& call) {
  return fmt::format("run {} {}", to_string(call.collective), call.count);
}

class FakeBackend final : public backend::Enqueuing {
 public:
  FakeBackend(FakeDevice& device, int number, backend::Parts& parts)
      : Enqueuing({number, "fake", device.link, device.addresses, device.strand_ctas}, parts.owner, parts.ledger),
        device_(device),
        fabric_(std::move(parts.fabric)) {}
  ~FakeBackend() override { device_.add("end of the back end"); }

  Status serve(const tuner::Selector& selector, const backend::Plans&) override {
    device_.selector = &selector;
    return note("serve");
  }
  Result<std::optional<uint64_t>> register_buffer(void*, uint64_t bytes, base::Time) override {
    device_.add(fmt::format("register {}", bytes));
    return std::optional<uint64_t>(kRegistration);
  }
  void end_registration(uint64_t number) override { device_.add(fmt::format("end {}", number)); }
  void stop() override { device_.add("stop"); }
  std::optional<backend::Absence> on_departure() override {
    device_.add("departure");
    return Enqueuing::on_departure();
  }
  Status fault() const override { return device_.fault(); }
  void observe() override {
    if (const auto wait = device_.wait()) ledger().waiting.begin(wait->since, wait->turn, wait->peer);
  }
  bool flush(std::chrono::nanoseconds, const std::function<bool()>&) override {
    device_.add("flush");
    return !device_.is_stuck();
  }

 protected:
  Status launch(const Call& call) override { return device_.launch(name_of(call)); }
  Status launch_messages(std::span<const Call> calls) override {
    return device_.launch(fmt::format("messages {}", calls.size()));
  }
  Status wait_for_all(Stream) override { return device_.launch("barrier"); }
  Status gather_streams(std::span<const Stream> streams) override {
    return note(fmt::format("gather {}", streams.size()));
  }
  Status release_streams(std::span<const Stream> streams) override {
    return note(fmt::format("release {}", streams.size()));
  }

 private:
  Status note(std::string event) {
    device_.add(std::move(event));
    return {};
  }

  FakeDevice& device_;
  std::unique_ptr<backend::Fabric> fabric_;
};

}  // namespace

std::vector<std::string> FakeDevice::did() const {
  const std::lock_guard lock(mutex_);
  return did_;
}

size_t FakeDevice::count_locked(const std::string& event) const {
  return static_cast<size_t>(std::count(did_.begin(), did_.end(), event));
}

size_t FakeDevice::count(const std::string& event) const {
  const std::lock_guard lock(mutex_);
  return count_locked(event);
}

void FakeDevice::add(std::string event) {
  const std::lock_guard lock(mutex_);
  did_.push_back(std::move(event));
  changed_.notify_all();
}

bool FakeDevice::wait_for(const std::string& event, size_t times) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return count_locked(event) >= times; });
}

void FakeDevice::set_result(const Status& result) {
  const std::lock_guard lock(mutex_);
  result_ = result;
}

void FakeDevice::hold(FakeDevice& recorder) {
  const std::lock_guard lock(mutex_);
  recorder_ = &recorder;
}

void FakeDevice::set_fault(const Status& fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
}

void FakeDevice::set_wait(std::chrono::seconds ago, uint32_t peer) {
  const std::lock_guard lock(mutex_);
  wait_ = {backend::Waiting::Clock::now() - ago, {backend::Turn::Kind::kCollective, 0, 1}, peer};
}

void FakeDevice::set_stuck() {
  const std::lock_guard lock(mutex_);
  stuck_ = true;
}

Status FakeDevice::launch(const std::string& event) {
  add(event);
  std::unique_lock lock(mutex_);
  if (recorder_ == nullptr) return result_;
  recorder_->add("held");
  const bool ended = changed_.wait_for(lock, kPatience, [&] { return count_locked("stop") > 0; });
  return ended ? Status(Code::kAborted, "the device was stopped")
               : Status(Code::kInternal, "the device was not stopped");
}

Status FakeDevice::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

std::optional<backend::Waiting::Wait> FakeDevice::wait() const {
  const std::lock_guard lock(mutex_);
  return wait_;
}

bool FakeDevice::is_stuck() const {
  const std::lock_guard lock(mutex_);
  return stuck_;
}

backend::Factory FakeDevice::factory(int number) {
  return [this, number](backend::Parts& parts) -> Result<std::unique_ptr<backend::Backend>> {
    add("make");
    ledger = &parts.ledger;
    had_gpu_options = parts.gpu.has_value();
    const std::lock_guard lock(mutex_);
    if (!result_.ok()) return result_;
    return std::unique_ptr<backend::Backend>(std::make_unique<FakeBackend>(*this, number, parts));
  };
}

}  // namespace tutti::test
