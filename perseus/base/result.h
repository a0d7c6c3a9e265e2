// Result is what a function returns that can fail: a value or an Error.
//
// The message of an Error is one line with the place in the input, the cause and the remedy:
//   profile.csv:17: frequency "14l0" is not a number (expected MHz, such as 1410)
// It names a value by its key, as in the job file, and no flag: `pp_ranks` (RenameKeys in
// wording.h). Libraries return errors; only cli/ prints them, and only tests abort.
#pragma once

#include <fmt/core.h>

#include <string>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace perseus {

// What kind of problem an error is. cli/ turns it into the exit status.
enum class ErrorKind {
  kInput,        // The input is wrong; the message says where and how to fix it. Exit status 2.
  kFile,         // A file that the user names cannot be read: it does not exist, is a directory, or
                 // may not be read. Exit status 2. In Python, an OSError.
  kSystem,       // The system refused: disk full, no memory. Exit status 1.
  kUnreachable,  // The request is valid but impossible, such as a deadline below the least possible
                 // time. The message says what is possible. Exit status 3.
};

struct Error {
  std::string message;
  ErrorKind kind = ErrorKind::kInput;
};

// A value or an Error. The compiler complains if the caller ignores it.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

// `return Fail("{}: stage {} is missing", file, stage);`
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> Fail(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(
      Error{fmt::format(format, std::forward<Args>(args)...), ErrorKind::kInput});
}

template <typename... Args>
[[nodiscard]] tl::unexpected<Error> FailAs(ErrorKind kind, fmt::format_string<Args...> format,
                                           Args&&... args) {
  return tl::unexpected<Error>(Error{fmt::format(format, std::forward<Args>(args)...), kind});
}

// Passes on the error of another result, of any type.
template <typename T>
[[nodiscard]] tl::unexpected<Error> Fail(const Result<T>& failed) {
  return tl::unexpected<Error>(failed.error());
}

template <typename T>
inline constexpr bool kMayBeDropped = std::is_void_v<T> || std::is_copy_constructible_v<T>;

}  // namespace perseus

#define PERSEUS_CONCATENATE_(a, b) a##b
#define PERSEUS_CONCATENATE(a, b) PERSEUS_CONCATENATE_(a, b)

// PERSEUS_ASSIGN_OR_RETURN(const Profile profile, ReadProfile(path));
// Declares a variable with the value. If the result is an error, the enclosing function returns the
// error. A type with a comma needs parentheses; or use auto.
#define PERSEUS_ASSIGN_OR_RETURN(declaration, ...)                                       \
  PERSEUS_ASSIGN_OR_RETURN_(PERSEUS_CONCATENATE(result_of_line_, __LINE__), declaration, \
                            __VA_ARGS__)
#define PERSEUS_ASSIGN_OR_RETURN_(result, declaration, ...) \
  auto result = __VA_ARGS__;                                \
  if (!result) return Fail(result);                         \
  declaration = *std::move(result)

// PERSEUS_RETURN_IF_ERROR(CheckNoise(flags));
// Only for a call whose value is not needed. A value that cannot be copied holds a resource (a
// lock, a descriptor, a process), which would be released at once. So such a call does not compile:
// keep the value with PERSEUS_ASSIGN_OR_RETURN.
#define PERSEUS_RETURN_IF_ERROR(...)                                                         \
  do {                                                                                       \
    if (auto result_of_call = __VA_ARGS__; !result_of_call) {                                \
      return Fail(result_of_call);                                                           \
    } else {                                                                                 \
      static_assert(::perseus::kMayBeDropped<typename decltype(result_of_call)::value_type>, \
                    "the value holds a resource: keep it with PERSEUS_ASSIGN_OR_RETURN");    \
    }                                                                                        \
  } while (false)
