// The states of records, and their words.
//
// Each state is one word in the database, in HTTP answers, in metrics and in logs. A word never
// changes, because a database keeps it.
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
// Where the comparison of a plan with the default clocks is (telemetry/plan_guard.h).
enum class GuardState : std::uint8_t { kTrial, kWithdrawn, kCleared };
// What a token is for (docs/identity.md).
enum class Scope : std::uint8_t { kOperator, kMember, kAgent, kJob, kRead, kJoin };

// The words of a state, in the order of its enumerators, and its description in errors.
template <typename State>
struct Words;
template <>
struct Words<JobStatus> {
  static constexpr std::string_view kState = "a status of a job";
  static constexpr std::array<std::string_view, 3> kWords{"waiting", "planned", "failed"};
};
template <>
struct Words<StragglerSource> {
  static constexpr std::string_view kState = "a source of a straggler";
  static constexpr std::array<std::string_view, 3> kWords{"detected", "forecast", "report"};
};
template <>
struct Words<StragglerEnd> {
  static constexpr std::string_view kState = "an end of a straggler";
  static constexpr std::array<std::string_view, 3> kWords{"replaced", "withdrawn", "expired"};
};
template <>
struct Words<GuardState> {
  static constexpr std::string_view kState = "a state of a guard";
  static constexpr std::array<std::string_view, 3> kWords{"trial", "withdrawn", "cleared"};
};
template <>
struct Words<Scope> {
  static constexpr std::string_view kState = "a scope";
  static constexpr std::array<std::string_view, 6> kWords{"operator", "member", "agent",
                                                          "job",      "read",   "join"};
};

template <typename State>
constexpr std::string_view Name(State state) {
  return Words<State>::kWords[static_cast<std::size_t>(state)];
}

// The state with that word, or nothing if no state has it.
template <typename State>
constexpr std::optional<State> Parse(std::string_view word) {
  constexpr auto& kWords = Words<State>::kWords;
  const auto found = std::ranges::find(kWords, word);
  if (found == kWords.end()) return std::nullopt;
  return static_cast<State>(found - kWords.begin());
}

}  // namespace perseus::store
