// For tests of functions that may fail: the value of a result, and matchers of failures. A result
// is a Result, a DeviceResult or an Answer.
#pragma once

#include <gmock/gmock.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace perseus {

// The text of an error or of a refusal.
template <typename AnyError>
std::string TextOfFailure(const AnyError& error) {
  if constexpr (requires { error.Message(); }) {
    return error.Message();
  } else {
    return error.message;
  }
}

// Returns the value. If there is no value, the test fails with the message of the error.
template <typename AnyResult>
auto ValueOf(AnyResult result) {
  if (!result) throw std::runtime_error(TextOfFailure(result.error()));
  return *std::move(result);
}

// The kind of an error or the code of a refusal.
template <typename AnyError>
auto KindOfFailure(const AnyError& error) {
  if constexpr (requires { error.kind; }) {
    return error.kind;
  } else {
    return error.code;
  }
}

// EXPECT_THAT(ReadProfile(path), FailsWith(HasSubstr("is not a number")));
MATCHER_P(FailsWith, message, "") {
  return !arg && testing::ExplainMatchResult(message, TextOfFailure(arg.error()), result_listener);
}
MATCHER_P(FailsAs, kind, "") { return !arg && KindOfFailure(arg.error()) == kind; }
MATCHER_P2(FailsAs, kind, message, "") {
  return testing::ExplainMatchResult(testing::AllOf(FailsAs(kind), FailsWith(message)), arg,
                                     result_listener);
}

}  // namespace perseus
