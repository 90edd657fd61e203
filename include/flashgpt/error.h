// The one error type. Thrown early, with the argument's name, its value and what was expected; translated at the edge
// (an exit code in the command line, a status in the C ABI, an exception in Python).
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace flashgpt {

// Values are the exit codes of the command line.
enum class ErrorCode { kFailure = 1, kUsage = 2, kInvalid = 3, kDevice = 4 };

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// cat("batch_size = ", 3, " is odd"): the text of its arguments, one after the other.
template <class... Parts> std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// A bad input of a user: config, data, argument of a public function.
template <class... Parts> [[noreturn]] void fail(const Parts&... parts) { throw Error(ErrorCode::kInvalid, cat(parts...)); }

// require(x > 0, "x = ", x, ", expected a positive number"): the text is only built when the condition is false.
template <class... Parts> void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(parts...);
}

}  // namespace flashgpt
