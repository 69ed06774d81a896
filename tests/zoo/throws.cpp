// SPDX-License-Identifier: Apache-2.0
// A tuner whose open throws: the facade must turn it into a failure with its text.
#include <stdexcept>

#include "tutti/sdk/tuner.h"

namespace {

class Throws : public tutti::sdk::Tuner {
 public:
  tutti::Status open(const tutti::sdk::Host& /*host*/) override { throw std::runtime_error("the table has no legs"); }
  tutti::Result<std::unique_ptr<tutti::sdk::TunerInstance>> create(const tutti_topology& /*topology*/) override {
    return tutti::Status(tutti::Code::kInternal, "never reached");
  }
};

}  // namespace

TUTTI_PLUGIN(Throws, "throws", "1.0", "throws from open")
