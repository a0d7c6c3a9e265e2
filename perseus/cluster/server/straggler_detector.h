// Which pipeline of a job is slow, from what each reports of its steps.
//
// All pipelines end a step together, whoever was slow, so step times tell nothing. What tells is
// the time that a pipeline itself took, from the step's begin to its last computation (busy),
// against what the plan that it follows says (expected): a slowdown that we intend is in both.
//
//   r_p = busy_p / expected_p               x_p = r_p / lower median over pipelines of r
//
// The median takes out what all share: a plan that promises a little too much, slow storage. (Of
// two pipelines the lower one is taken: if both are slow, nobody waits.) So a pipeline is judged
// beside others or not at all: alone, it could not be told from what all share. Steps that others
// did not report in time, as after an outage, are left out, and so are pipelines that follow
// assignment nobody knows, where others follow known ones.
//
// Noise. A quiet step is one of a pipeline that is no straggler and whose x is below the threshold.
// s: what nine of ten of the last kPast quiet steps are off by at most, over 1.645, as of a normal
// distribution. (Not the median: of two pipelines x is exactly 1 every other time.) The threshold
// is 1 + max(kLeast, kNoise s); 1 + kUnknown until there are kLeastPast quiet steps.
//
// Raised after kToRaise steps in a row above the threshold: one step that blips raises nothing. The
// slowdown is the least of them. Later it follows the median of the last three steps, if that is
// off by more than kUpdate. Cleared after a row of steps below half of the threshold's excess
// (hysteresis): kToClear of them, twice as many after each time that it is raised again within
// kFlapping steps of being cleared, up to kMostToClear. So what flaps stays raised: moving there
// and back costs more than staying.
//
// The first step of other assignment is left out, as ranks may have changed in it.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace perseus::server {

struct PipelineStep {
  std::int64_t step = 0;
  int pipeline = 0;
  double busy_s = 0;         // Of the whole pipeline: the largest of its nodes'.
  double expected_s = 0;     // By the plan in force; 0: unknown, all pipelines do the same.
  std::int64_t version = 0;  // Of the assignment that it followed.
};

struct StragglerChange {
  int pipeline = 0;
  double slowdown = 1;  // 1: it is none any more.
  friend bool operator==(const StragglerChange&, const StragglerChange&) = default;
};

// What the steps that were just judged came to.
struct StragglerVerdicts {
  std::vector<StragglerChange> changes;
  std::map<int, double> unchanged;  // Slowdowns of those that are as slow as was said before.
};

class StragglerDetector {
 public:
  static constexpr int kToRaise = 2;
  static constexpr int kToClear = 3;
  static constexpr int kMostToClear = 96;
  static constexpr int kFlapping = 60;
  static constexpr std::size_t kPast = 64;
  static constexpr std::size_t kLeastPast = 8;
  static constexpr double kUnknown = 0.05;
  static constexpr double kLeast = 0.02;
  static constexpr double kNoise = 5;
  static constexpr double kUpdate = 0.01;

  // A step is judged once a later one is reported by every pipeline that still reports, or when it
  // is three behind the newest; what comes after that is passed over. O(log P) a report of P
  // pipelines.
  StragglerVerdicts Add(const PipelineStep& report);

  // The job's steps count from lower numbers again.
  void Restart();
  // Raised by another detector, whose knowledge this one goes on with.
  void Raise(int pipeline, double slowdown);
  // Whatever was said of it is taken back: it is raised again if it is so.
  void Forget(int pipeline);

  // Those that are raised.
  std::map<int, double> Stragglers() const;

 private:
  struct Pipeline {
    std::deque<double> quiet;   // x of quiet steps.
    std::deque<double> latest;  // x, at most 3.
    std::int64_t version = -1;
    int above = 0;  // Steps in a row.
    double least_above = 0;
    int below = 0;
    int to_clear = kToClear;
    std::int64_t cleared_at = -1;
    std::optional<double> slowdown;
  };
  struct Judged {
    double busy_s = 0;
    double expected_s = 0;
    std::int64_t version = 0;
  };

  void NoteNewest(int number, std::int64_t step);
  // The step that every pipeline which still reports has come to.
  std::int64_t Common() const;
  void Judge(std::int64_t step, StragglerVerdicts& verdicts);
  std::optional<StragglerChange> Judge(std::int64_t step, int number, double x);
  static double Threshold(const Pipeline& pipeline);

  std::map<std::int64_t, std::map<int, Judged>> open_;  // [step][pipeline]
  std::map<int, Pipeline> pipelines_;
  std::map<int, std::int64_t> newest_;        // Step of each pipeline,
  std::map<std::int64_t, int> pipelines_at_;  // and of how many it is the newest.
  std::int64_t judged_ = -1;                  // The last step that was.
};

}  // namespace perseus::server
