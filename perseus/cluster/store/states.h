// The states of records, and the word for each state.
//
// Each state has one word, which is used in the database, in HTTP answers, in metrics and in logs.
// A word never changes, because databases contain it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace perseus::store {

// The result of the last planning of a job.
enum class JobStatus : std::uint8_t { kWaiting, kPlanned, kFailed };
// Where the slowdown of a straggler comes from.
enum class StragglerSource : std::uint8_t { kDetected, kForecast, kReport };
// How a straggler ended.
enum class StragglerEnd : std::uint8_t { kReplaced, kWithdrawn, kExpired };
// The state of the comparison of a plan with the default clocks (telemetry/plan_guard.h).
enum class GuardState : std::uint8_t { kTrial, kWithdrawn, kCleared };
// What a token is for (docs/identity.md).
enum class Scope : std::uint8_t { kOperator, kMember, kAgent, kJob, kRead, kJoin };

// The word of each enumerator of a state enum, in declaration order.
template <typename State>
inline constexpr std::array<std::string_view, 0> kWordsOf{};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<JobStatus>{"waiting", "planned",
                                                                     "failed"};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<StragglerSource>{"detected", "forecast",
                                                                           "report"};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<StragglerEnd>{"replaced", "withdrawn",
                                                                        "expired"};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<GuardState>{"trial", "withdrawn",
                                                                      "cleared"};
template <>
inline constexpr std::array<std::string_view, 6> kWordsOf<Scope>{"operator", "member", "agent",
                                                                 "job",      "read",   "join"};

template <typename State>
constexpr std::string_view Name(State state) {
  return kWordsOf<State>[static_cast<std::size_t>(state)];
}

// Returns the state with this word, or nullopt if no state has this word.
template <typename State>
constexpr std::optional<State> Parse(std::string_view word) {
  const auto found = std::ranges::find(kWordsOf<State>, word);
  if (found == kWordsOf<State>.end()) return std::nullopt;
  return static_cast<State>(found - kWordsOf<State>.begin());
}

}  // namespace perseus::store
