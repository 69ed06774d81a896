// SPDX-License-Identifier: Apache-2.0
// A tuner with a static initialiser that throws, or that ends the process: ZOO_EARLY is the statement.
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include "tutti/sdk/tuner.h"

namespace {

struct Early {
  Early() { ZOO_EARLY; }
};
const Early early;

class Never : public tutti::sdk::Tuner {
 public:
  tutti::Result<std::unique_ptr<tutti::sdk::TunerInstance>> create(const tutti_topology& /*topology*/) override {
    return tutti::Status(tutti::Code::kInternal, "never reached");
  }
};

}  // namespace

TUTTI_PLUGIN(Never, ZOO_NAME, "1.0", "does not get as far as this")
