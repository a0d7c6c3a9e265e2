// The result of a function that can fail: a value or an Error.
//
// An Error is data: what is wrong, where, what to do about it, and the setting that has to change.
// Each interface (the program, Python, the HTTP API) shows it in its own words. As one line:
//   profile.csv:17: frequency "14l0" is not a number (expected MHz, such as 1410)
//
// In a message, backticks always contain the key of a setting in the job file: `pp_ranks`, or with
// a value: `schedule = "auto"`. An interface replaces the key by its own name, such as a flag or an
// argument (RenameKeys in wording.h). Libraries return errors; only cli/ prints them, and only
// tests abort.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace perseus {

// The kind of problem. cli/ turns it into the exit status.
enum class ErrorKind {
  kInput,        // The input is wrong; the message says where and how to fix it. Exit status 2.
  kFile,         // A file that the user names cannot be read: it does not exist, is a directory, or
                 // may not be read. Exit status 2. In Python, an OSError.
  kSystem,       // The system refused: disk full, no memory. Exit status 1.
  kUnreachable,  // The request is valid but impossible, such as a deadline below the least possible
                 // time. The message says what is possible. Exit status 3.
};

// A place in an input, as far as it is known.
struct Place {
  std::string file = {};     // The name that the user gave. Empty: unknown.
  int line = 0;              // The first line is 1. 0: unknown.
  std::string pointer = {};  // The JSON pointer (RFC 6901) to the wrong value, or empty.

  std::string Text() const;  // "profile.csv:17", "plan.json", or "".
  friend bool operator==(const Place&, const Place&) = default;
};
Place InFile(std::string_view name, int line = 0);

struct Error {
  std::string what;
  ErrorKind kind = ErrorKind::kInput;
  std::string remedy = {};
  Place where = {};
  std::string context = {};  // The task that failed, such as "the memory of the GPUs".

  // The key of the setting that has to change: the first key that `what` names, or else the first
  // key that `remedy` names. Empty if they name no key.
  std::string setting() const;
  // One line: "context: where: what (remedy)".
  std::string Message() const;
  // As Message(), but without the remedy.
  std::string Cause() const;
  // Returns this error as part of a larger task. The message begins with the task.
  Error In(std::string_view task) const;
};

// A value or an error. The compiler complains if the caller ignores the result. The agent and the
// server use their own type E: the error that they send to the caller.
template <typename T, typename E = Error>
class [[nodiscard]] Result : public tl::expected<T, E> {
 public:
  using tl::expected<T, E>::expected;
};

// The format of a message, checked when it is compiled. A last part in parentheses is the remedy.
template <typename... Args>
class MessageFormat {
 public:
  // Implicit, so that a literal can be passed.
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval MessageFormat(const char* text) : format_(text), cause_size_(CauseSize(text)) {}

  Error operator()(ErrorKind kind, Args&&... args) const {
    const fmt::string_view format = format_;
    const auto store = fmt::make_format_args(args...);
    std::string text = fmt::vformat(format, store);
    Error error{.what = std::move(text), .kind = kind};
    if (cause_size_ == format.size()) return error;
    // Arguments may have parentheses, so the formatted text cannot tell where the remedy begins.
    const std::size_t size = fmt::vformat({format.data(), cause_size_}, store).size();
    error.remedy = error.what.substr(size + 2, error.what.size() - size - 3);
    error.what.resize(size);
    return error;
  }

 private:
  static consteval std::size_t CauseSize(std::string_view text) {
    if (!text.ends_with(')')) return text.size();
    int depth = 0;
    for (std::size_t i = text.size(); i-- > 1;) {
      if (text[i] == ')') ++depth;
      if (text[i] == '(') --depth;
      if (depth == 0) return text[i - 1] == ' ' ? i - 1 : text.size();
    }
    return text.size();
  }

  fmt::format_string<Args...> format_;
  std::size_t cause_size_;
};

template <typename... Args>
using MessageOf = MessageFormat<std::type_identity_t<Args>...>;

// `return Fail("stage {} is missing (measure it)", stage);`
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> FailAs(ErrorKind kind, MessageOf<Args...> message,
                                           Args&&... args) {
  return tl::unexpected<Error>(message(kind, std::forward<Args>(args)...));
}
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> Fail(MessageOf<Args...> message, Args&&... args) {
  return FailAs(ErrorKind::kInput, message, std::forward<Args>(args)...);
}

// With the place of the mistake: `return Fail(InFile(name, line), "the row is empty (remove it)");`
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> FailAs(ErrorKind kind, Place where, MessageOf<Args...> message,
                                           Args&&... args) {
  Error error = message(kind, std::forward<Args>(args)...);
  error.where = std::move(where);
  return tl::unexpected<Error>(std::move(error));
}
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> Fail(Place where, MessageOf<Args...> message, Args&&... args) {
  return FailAs(ErrorKind::kInput, std::move(where), message, std::forward<Args>(args)...);
}

// Passes on the error of another result, of any type. `context` names the larger task. `where` is
// used if the error has no place.
template <typename T, typename E>
[[nodiscard]] tl::unexpected<E> Fail(const Result<T, E>& failed) {
  return tl::unexpected<E>(failed.error());
}
template <typename T>
[[nodiscard]] tl::unexpected<Error> Fail(const Result<T>& failed, std::string_view context) {
  return tl::unexpected<Error>(failed.error().In(context));
}
template <typename T>
[[nodiscard]] tl::unexpected<Error> Fail(const Result<T>& failed, Place where) {
  Error error = failed.error();
  if (error.where == Place{}) error.where = std::move(where);
  return tl::unexpected<Error>(std::move(error));
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
// lock, a descriptor, a process), and the macro would release this resource at once. So such a call
// does not compile: keep the value with PERSEUS_ASSIGN_OR_RETURN.
#define PERSEUS_RETURN_IF_ERROR(...)                                                         \
  do {                                                                                       \
    if (auto result_of_call = __VA_ARGS__; !result_of_call) {                                \
      return Fail(result_of_call);                                                           \
    } else {                                                                                 \
      static_assert(::perseus::kMayBeDropped<typename decltype(result_of_call)::value_type>, \
                    "the value holds a resource: keep it with PERSEUS_ASSIGN_OR_RETURN");    \
    }                                                                                        \
  } while (false)
