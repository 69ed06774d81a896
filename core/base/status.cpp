// SPDX-License-Identifier: Apache-2.0
#include "tutti/status.h"

namespace tutti {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kAgain:
      return "again";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kFailedPrecondition:
      return "failed precondition";
    case Code::kVersionMismatch:
      return "version mismatch";
    case Code::kConfig:
      return "configuration error";
    case Code::kSystem:
      return "system error";
    case Code::kDevice:
      return "device error";
    case Code::kRemote:
      return "remote error";
    case Code::kTimeout:
      return "timeout";
    case Code::kAborted:
      return "aborted";
    case Code::kMismatch:
      return "mismatch between ranks";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown code";
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string out(tutti::to_string(code()));
  out.append(": ").append(text());
  return out;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  std::string text(context);
  text.append(": ").append(this->text());
  return Status(code(), std::move(text));
}

}  // namespace tutti
