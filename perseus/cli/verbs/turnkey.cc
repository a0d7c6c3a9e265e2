#include "perseus/cli/verbs/turnkey.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

// A training may load data for hours before its first step, and save a checkpoint for minutes.
constexpr const char* kStartTimeoutSeconds = "1000000";
constexpr const char* kSilenceSeconds = "600";
constexpr double kPatienceSeconds = 20;
constexpr int kSystemFailureOfVerb = 1;  // The exit status of a verb.
constexpr int kMostRetries = 3;
constexpr int kPlansMeasured = 3;  // tune follows the baseline and two plans.
// If the range of the promised saving is wider, the summary mentions it.
constexpr double kUnsure = 0.02;

nlohmann::json ReadJson(const fs::path& path) {
  const auto text = protocol::ReadJobFile(path.parent_path(), path.filename());
  return text ? ParseJson(*text) : nlohmann::json();
}

// Returns a number of a result, or 0.
double NumberAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json::json_pointer place(pointer);
  return json.is_object() && json.contains(place) && json.at(place).is_number()
             ? json.at(place).get<double>()
             : 0;
}

// Formats an interval: "12.31 % (12.02 % to 12.60 %)".
std::string IntervalAt(const nlohmann::json& json, const std::string& name) {
  const auto at = [&](const char* end) {
    return FormatPercent(NumberAt(json, ("/" + name + end).c_str()));
  };
  return fmt::format("{} ({} to {})", at("/estimate"), at("/lower"), at("/upper"));
}

// Starts a verb, with new files for its output.
Result<Child> StartVerb(ChildSpec spec, const fs::path& directory, const std::string& name) {
  PERSEUS_ASSIGN_OR_RETURN(const auto folder, protocol::OwnFolder::Open(directory));
  PERSEUS_ASSIGN_OR_RETURN(spec.output, folder.CreateFile(name + ".json"));
  PERSEUS_ASSIGN_OR_RETURN(spec.errors, folder.CreateFile(name + ".log"));
  return Child::Start(spec);
}

std::string WithoutName(const std::string& line) {
  constexpr std::string_view kName = "perseus: ";
  return line.starts_with(kName) ? line.substr(kName.size()) : line;
}

double WidthAt(const nlohmann::json& json, const std::string& name) {
  return NumberAt(json, ("/" + name + "/upper").c_str()) -
         NumberAt(json, ("/" + name + "/lower").c_str());
}

}  // namespace

bool Turnkey::HasSteps() const {
  const auto logs = protocol::FindRankLogs(options_.job_directory);
  return logs && std::ranges::any_of(*logs, [&](const auto& log) {
           std::error_code failure;
           return fs::last_write_time(log.second, failure) >= options_.start && !failure;
         });
}

void Turnkey::Start(const std::string& verb, const std::string& name,
                    std::vector<std::string> flags) {
  const fs::path& directory = options_.job_directory;
  ChildSpec spec;
  spec.command = {OwnProgram().string(), verb,           directory.string(), "--json",
                  "--timeout",           kSilenceSeconds};
  spec.command.insert(spec.command.end(), flags.begin(), flags.end());
  log_ = directory / (name + ".log");
  forwarded_ = 0;
  // Ctrl-C reaches only the training. This process ends the verb.
  spec.group = ChildSpec::Group::kOwn;
  auto child = StartVerb(std::move(spec), directory, name);
  if (child) {
    child_ = *std::move(child);
  } else {
    (phase_ == Phase::kKeepingPace ? pace_failure_ : failure_) = child.error().Message();
    phase_ = Phase::kOver;
  }
}

void Turnkey::Advance() {
  if (child_) {
    const auto status = child_->Status();
    Forward();
    if (status) Take(*status);
    return;
  }
  if (phase_ == Phase::kBeforeSteps && HasSteps()) Tune();
}

// Passes on the lines that the verb has written since the last call.
void Turnkey::Forward() {
  std::error_code error;
  if (fs::file_size(log_, error) == forwarded_ || error) return;
  const std::string text = protocol::ReadJobFile(log_.parent_path(), log_.filename()).value_or("");
  for (std::size_t end = 0; (end = text.find('\n', forwarded_)) != std::string::npos;) {
    options_.say(WithoutName(text.substr(forwarded_, end - forwarded_)));
    forwarded_ = end + 1;
  }
}

void Turnkey::Tune() {
  phase_ = Phase::kTuning;
  std::vector<std::string> flags = options_.tune_flags;
  flags.insert(flags.end(), {"-o", (options_.job_directory / "tuned").string(), "--start-timeout",
                             kStartTimeoutSeconds});
  Start("tune", "tune", std::move(flags));
}

// Handles the end of the verb.
void Turnkey::Take(int status) {
  child_.reset();
  if (phase_ == Phase::kKeepingPace) return TakePace(status);
  const bool was_tune = phase_ == Phase::kTuning;
  // The ranks may have restarted. tune continues with what it has measured.
  const std::string failure = LastLineOf(was_tune ? "tune.log" : "verify.log");
  if (status == kSystemFailureOfVerb && !has_training_ended_ && ++retries_ <= kMostRetries) {
    if (was_tune) {
      failure_ = failure;
      spent_at_failure_ = SpentSteps();
    }
    return was_tune ? Tune() : Verify();
  }
  phase_ = Phase::kOver;
  if (status != 0) {
    if (!was_tune && !has_training_ended_) KeepPace();
    // If the training has ended, its end is the reason of the failure. But if no step was measured
    // since the last failure, the failure has another reason.
    if (!has_training_ended_) {
      failure_ = failure;
    } else if (!was_tune || SpentSteps() != spent_at_failure_) {
      failure_.clear();
    }
    return;
  }
  failure_.clear();
  (was_tune ? is_tuned_ : is_verified_) = true;
  if (has_training_ended_) return;
  was_tune ? Verify() : KeepPace();
}

void Turnkey::TakePace(int status) {
  phase_ = Phase::kOver;
  if (status == 0 || has_training_ended_) return;
  if (status == kSystemFailureOfVerb && ++retries_ <= kMostRetries) return KeepPace();
  pace_failure_ = LastLineOf("pace.log");
}

void Turnkey::Verify() {
  phase_ = Phase::kVerifying;
  Start("verify", "verify",
        {"--steps", std::to_string(options_.verify_steps), "--tolerance",
         fmt::format("{:g}", TolerancePercent())});
}

void Turnkey::KeepPace() {
  const nlohmann::json tuned = ReadJson(options_.job_directory / "tune.json");
  // Without differences between pipelines, no plan follows another one.
  if (NumberAt(tuned, "/pipelines_with_faster_plans") == 0) return;
  phase_ = Phase::kKeepingPace;
  has_kept_pace_ = true;
  std::vector<std::string> flags = options_.tune_flags;
  flags.insert(flags.end(), {"--keep-pace", "--start-timeout", kStartTimeoutSeconds});
  Start("tune", "pace", std::move(flags));
}

void Turnkey::Finish() {
  has_training_ended_ = true;
  if (child_) Take(child_->End(kPatienceSeconds));
}

std::string Turnkey::LastLineOf(const std::string& log) const {
  std::string text = protocol::ReadJobFile(options_.job_directory, log).value_or("");
  while (text.ends_with('\n')) text.pop_back();
  text = text.substr(text.rfind('\n') + 1);
  return text.empty() ? "it was killed" : WithoutName(text);
}

int Turnkey::SpentSteps() const {
  return static_cast<int>(
      NumberAt(ReadJson(options_.job_directory / "tuner.json"), "/spent/steps"));
}

// Returns the least number of steps that are left. The real number is higher, because ranks read an
// assignment a few steps after it was written.
int Turnkey::StepsLeft() const {
  const int tuning =
      std::max(0, options_.budget_steps - SpentSteps()) + kPlansMeasured * options_.follow_steps;
  return options_.verify_steps + (is_tuned_ ? 0 : tuning);
}

// Returns a reason to doubt the plan, or an empty text.
std::string Turnkey::VerdictOf(const nlohmann::json& verified) const {
  const auto is = [&](const char* question, const char* answer) {
    return verified.is_object() && verified.value(question, "") == answer;
  };
  if (is("saves", "less")) return "the plan needs more energy than steps without it";
  if (is("slows", "greater") &&
      100 * NumberAt(verified, "/slowdown/lower") > options_.slowdown_percent) {
    return options_.slowdown_percent > 0
               ? fmt::format("the plan is more than {:g} % slower than steps without it",
                             options_.slowdown_percent)
               : "the plan is slower than steps without it";
  }
  if (!is("saves", "cannot-tell") && !is("slows", "cannot-tell")) return {};
  const double steps = NumberAt(verified, "/steps_needed");
  return fmt::format(
      "these steps cannot tell {}{}",
      is("saves", "cannot-tell")
          ? "whether the plan saves energy"
          : fmt::format("whether the plan is slower by more than {:g} %", TolerancePercent()),
      steps > 0 ? fmt::format("; about {:.0f} would (--verify-steps)", steps) : "");
}

// What plans for other slowdowns would save, as tune found. Empty if it is unsure.
std::vector<tuner::OutlookRow> Turnkey::Outlook() const {
  if (!is_tuned_) return {};
  std::vector<tuner::OutlookRow> rows;
  const nlohmann::json tuned = ReadJson(options_.job_directory / "tune.json");
  if (!tuned.is_object() || WidthAt(tuned, "saving_interval") > kUnsure) return rows;
  for (const nlohmann::json& row : tuned.value("outlook", nlohmann::json::array())) {
    rows.push_back({NumberAt(row, "/slowdown_percent"), NumberAt(row, "/saving")});
  }
  return rows;
}

std::vector<std::string> Turnkey::Summary() const {
  std::vector<std::string> lines;
  const std::string directory = options_.job_directory.string();
  if (is_tuned_) {
    const nlohmann::json tuned = ReadJson(options_.job_directory / "tune.json");
    lines.push_back(fmt::format("the plan promises to save {} of the energy at {} more time",
                                IntervalAt(tuned, "saving_interval"),
                                IntervalAt(tuned, "slowdown_interval")));
    if (WidthAt(tuned, "saving_interval") > kUnsure) {
      lines.push_back(
          "the promise is unsure, because steps differ much from each other or from their "
          "instructions (does another program use these machines? --follow-steps N measures N "
          "steps of each plan)");
    }
  }
  if (is_verified_) {
    const nlohmann::json verified = ReadJson(options_.job_directory / "verify.json");
    lines.push_back(
        fmt::format("measured against steps without it: it saves {} of the energy at {} more "
                    "time, with 95 % confidence intervals",
                    IntervalAt(verified, "saving"), IntervalAt(verified, "slowdown")));
    if (const std::string verdict = VerdictOf(verified); !verdict.empty()) {
      lines.push_back(verdict);
    }
  }
  if (is_tuned_) {
    lines.push_back(
        fmt::format("the plan is {}, with its profiles beside it; the next perseus run with "
                    "--job-directory {} follows it from its first step on",
                    PlanPath().string(), directory));
  }
  if (const auto outlook = Outlook(); !outlook.empty()) lines.push_back(tuner::Describe(outlook));
  const nlohmann::json pace =
      has_kept_pace_ ? ReadJson(options_.job_directory / "pace.json") : nlohmann::json();
  if (const double changes = NumberAt(pace, "/changes"); changes > 0) {
    lines.push_back(fmt::format("the plans followed the slowest pipelines: {}",
                                Counted(static_cast<std::int64_t>(changes), "change")));
  }
  if (!pace_failure_.empty()) {
    lines.push_back("the plans no longer follow the slowest pipelines: " + pace_failure_);
  }
  if (is_verified_) return lines;
  const std::string what = is_tuned_ ? "the plan is not verified" : "there is no plan";
  if (phase_ == Phase::kBeforeSteps && !HasSteps()) {
    lines.push_back(what + ": no rank recorded a step");
  } else if (failure_.empty()) {
    lines.push_back(
        fmt::format("{}: the training ended too early; at least {} more steps are needed, and "
                    "perseus run --tune --job-directory {} continues",
                    what, StepsLeft(), directory));
  } else {
    lines.push_back(fmt::format("{}: {} (see the logs in {})", what, failure_, directory));
  }
  return lines;
}

}  // namespace perseus::cli
