// `perseus run --tune`: profiles a training, plans, follows the plan and verifies it, beside the
// training. Then keeps the plans at the pace of the slowest pipelines, until the training ends.
// Runs the verbs `tune` and `verify` as separate processes. If these processes fail, the training
// continues.
//
//   JOBDIR/tune.log, verify.log, pace.log      the output of the verbs
//   JOBDIR/tune.json, verify.json, pace.json   their results
//   JOBDIR/tuned/                              the plan and the profiles
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perseus/cli/verbs/child_process.h"
#include "perseus/runtime/tuner/outlook.h"

namespace perseus::cli {

struct TurnkeyOptions {
  std::filesystem::path job_directory;
  std::vector<std::string> tune_flags;  // The user's flags for `perseus tune`.
  double slowdown_percent = 0;          // That the user permits.
  int budget_steps = 60;
  int follow_steps = 12;
  int verify_steps = 100;
  // The start of this run. Older logs are from an earlier run.
  std::filesystem::file_time_type start;
  // Receives each line that the verbs print while the training runs, without "perseus: ".
  std::function<void(const std::string&)> say;
};

class Turnkey {
 public:
  explicit Turnkey(TurnkeyOptions options) : options_(std::move(options)) {}

  // Starts `tune` after the first steps of the training, and `verify` after `tune`, and then `tune
  // --keep-pace`. Call this several times a second.
  void Advance();
  // Ends the running verb, because the training has ended.
  void Finish();
  // Describes the outcome. Each text is a line.
  std::vector<std::string> Summary() const;

 private:
  enum class Phase { kBeforeSteps, kTuning, kVerifying, kKeepingPace, kOver };

  bool HasSteps() const;
  // `name` is that of the output.
  void Start(const std::string& verb, const std::string& name, std::vector<std::string> flags);
  void Tune();
  void Verify();
  void KeepPace();
  void Take(int status);
  void TakePace(int status);
  void Forward();
  std::string LastLineOf(const std::string& log) const;
  int SpentSteps() const;  // The steps that tune has measured.
  int StepsLeft() const;
  // The slowdown in percent up to which a plan is as promised. 0.2 % is the tolerance of verify.
  double TolerancePercent() const { return options_.slowdown_percent + 0.2; }
  std::vector<tuner::OutlookRow> Outlook() const;
  std::string VerdictOf(const nlohmann::json& verified) const;
  std::filesystem::path PlanPath() const { return options_.job_directory / "tuned" / "plan.json"; }

  TurnkeyOptions options_;
  Phase phase_ = Phase::kBeforeSteps;
  std::optional<Child> child_;
  std::filesystem::path log_;  // The log file of the running verb.
  std::size_t forwarded_ = 0;  // Bytes of the log that were passed on.
  int retries_ = 0;
  bool has_training_ended_ = false;
  bool is_tuned_ = false;
  bool is_verified_ = false;
  bool has_kept_pace_ = false;
  std::string failure_;       // Why the tuning ended early, or empty.
  std::string pace_failure_;  // Why the plans do not keep the pace, or empty.
  int spent_at_failure_ = 0;
};

}  // namespace perseus::cli
