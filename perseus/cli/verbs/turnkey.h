// `perseus run --tune`: profiles, plans, follows and verifies beside a training, with the verbs
// `tune` and `verify` as processes of their own. If they fail, the training goes on.
//
//   JOBDIR/tune.log, verify.log      what the verbs said
//   JOBDIR/tune.json, verify.json    their results
//   JOBDIR/tuned/                    the plan and the profiles
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perseus/cli/verbs/child_process.h"

namespace perseus::cli {

struct TurnkeyOptions {
  std::filesystem::path job_directory;
  std::vector<std::string> tune_flags;  // The user's flags for `perseus tune`.
  int budget_steps = 60;
  int follow_steps = 12;
  int verify_steps = 100;
  std::filesystem::file_time_type start;  // Logs that are older are of an earlier run.
  // Receives each line of the verbs while the training runs, without "perseus: ".
  std::function<void(const std::string&)> say;
};

class Turnkey {
 public:
  explicit Turnkey(TurnkeyOptions options) : options_(std::move(options)) {}

  // Starts the next verb if it is time for it. Call it several times a second.
  void Advance();
  // The training has ended: ends the verb that runs.
  void Finish();
  // What came of it, in lines.
  std::vector<std::string> Summary() const;

 private:
  enum class Phase { kBeforeSteps, kTuning, kVerifying, kOver };

  bool HasSteps() const;
  void Start(const std::string& verb, std::vector<std::string> flags);
  void Tune();
  void Verify();
  void Take(int status);
  void Forward();
  std::string LastLineOf(const std::string& log) const;
  int SpentSteps() const;  // That tune has measured.
  int StepsLeft() const;
  std::filesystem::path PlanPath() const { return options_.job_directory / "tuned" / "plan.json"; }

  TurnkeyOptions options_;
  Phase phase_ = Phase::kBeforeSteps;
  std::optional<Child> child_;
  std::filesystem::path log_;  // The log file of the verb that runs.
  std::size_t forwarded_ = 0;  // Bytes of the log.
  int retries_ = 0;
  bool has_training_ended_ = false;
  bool is_tuned_ = false;
  bool is_verified_ = false;
  std::string failure_;  // Why it ended early. Empty if it did not.
  int spent_at_failure_ = 0;
};

}  // namespace perseus::cli
