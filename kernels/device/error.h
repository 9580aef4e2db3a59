// SPDX-License-Identifier: Apache-2.0
// Typed errors of the whole project. Library code throws these; only `launch` turns them into
// an exit code. `ConfigError` is what a user can get wrong: its text is one clear sentence that
// ends with what to do. Everything else names a fault of the machine or of Tandem.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tandem {

/// Joins its arguments as an output stream would print them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A wrong option, file or request. Shown without file and line.
class ConfigError : public Error {
  using Error::Error;
};

/// A fault of a library call; `code` is that library's own number.
class CodedError : public Error {
 public:
  CodedError(const std::string& text, int code) : Error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

class CudaError : public CodedError {
  using CodedError::CodedError;
};
class NcclError : public CodedError {
  using CodedError::CodedError;
};
class CublasError : public CodedError {
  using CodedError::CodedError;
};
class MpiError : public CodedError {
  using CodedError::CodedError;
};

/// A broken invariant: a fault of Tandem itself.
class InternalError : public Error {
  using Error::Error;
};

namespace detail {
[[noreturn]] void throw_internal(const char* condition, const char* file, int line,
                                 const std::string& what);
}  // namespace detail
}  // namespace tandem

/// For what a user can get wrong: throws ConfigError with the given sentence.
#define TANDEM_REQUIRE(condition, ...)                                            \
  do {                                                                            \
    if (!(condition)) throw ::tandem::ConfigError(::tandem::concat(__VA_ARGS__)); \
  } while (false)

/// For what only Tandem can get wrong: throws InternalError with file and line.
#define TANDEM_ASSERT(condition, ...)                                  \
  do {                                                                 \
    if (!(condition))                                                  \
      ::tandem::detail::throw_internal(#condition, __FILE__, __LINE__, \
                                       ::tandem::concat(__VA_ARGS__)); \
  } while (false)
