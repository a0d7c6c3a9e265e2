// Detects which pipelines of a job are slow, from the reports of their steps.
//
// All pipelines end a step together, because they wait for the slowest one. So the time of a step
// does not show which pipeline was slow. The detector compares the time from the beginning of the
// step to the last instruction of the pipeline (busy) with the time in its plan (expected). A
// planned slowdown is in both times.
//
//   r_p = busy_p / expected_p               x_p = r_p / lower median over pipelines of r
//
// The median removes effects that all pipelines share, such as an optimistic plan or slow storage.
// (For two pipelines it is the lower value: if both are slow, neither waits for the other.) So a
// pipeline is judged only if others reported the same step. The detector ignores steps that others
// did not report in time, for example after an outage. It also ignores pipelines with an unknown
// assignment, if others have a known one.
//
// Noise. A quiet step is a step of a pipeline that is no straggler, with x below the threshold.
// Nine of ten of the last kPast quiet steps deviate by at most a certain value. s is this value,
// divided by 1.645 as for a normal distribution. (The median deviation would not work: with two
// pipelines, x is exactly 1 in every other step.) The threshold is 1 + max(kLeast, kNoise s).
// Before the first kLeastPast quiet steps, it is 1 + kUnknown.
//
// A straggler is raised after kToRaise consecutive steps above the threshold, so one slow step
// raises nothing. Its slowdown is the least of these steps. Later the slowdown follows the median
// of the last three steps, if the difference is more than kUpdate. A straggler is cleared after
// kToClear consecutive steps below half of the threshold's excess (hysteresis). If it is raised
// again within kFlapping steps, this number doubles each time, up to kMaxToClear. So a pipeline
// that is slow repeatedly stays raised, because changing plans repeatedly costs more.
//
// The first step of a new assignment is ignored, because the ranks may have changed plans in it.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace perseus::telemetry {

struct PipelineStep {
  std::int64_t step = 0;
  int dp_rank = 0;
  double busy_s = 0;         // The pipeline's busy time: the largest value of its nodes.
  double expected_s = 0;     // In its plan. 0: unknown. Then all are taken as equal.
  std::int64_t version = 0;  // The assignment that it followed.
};

struct StragglerChange {
  int dp_rank = 0;
  double slowdown = 1;  // 1: no longer a straggler.
  friend bool operator==(const StragglerChange&, const StragglerChange&) = default;
};

// The result of the steps that were just judged.
struct StragglerVerdicts {
  std::vector<StragglerChange> changes;
  std::map<int, double> unchanged;  // Slowdowns of stragglers that have not changed.
  // r of each judged step, by dp_rank, for the pipelines with a known plan.
  std::vector<std::map<int, double>> ratios;
};

class StragglerDetector {
 public:
  static constexpr int kToRaise = 2;
  static constexpr int kToClear = 3;
  static constexpr int kMaxToClear = 96;
  static constexpr int kFlapping = 60;
  static constexpr std::size_t kPast = 64;
  static constexpr std::size_t kLeastPast = 8;
  static constexpr double kUnknown = 0.05;
  static constexpr double kLeast = 0.02;
  static constexpr double kNoise = 5;
  static constexpr double kUpdate = 0.01;

  // Adds a step. A step is judged when all pipelines that still report have reported a later one,
  // or when it is three steps behind the newest. Later reports of this step are ignored. O(log P)
  // for each report of one of P pipelines.
  StragglerVerdicts Add(const PipelineStep& report);

  // Handles a restart of the job, which then counts its steps from 0 again.
  void Restart();
  // Takes over a straggler from another detector.
  void Raise(int dp_rank, double slowdown);
  // Forgets a straggler. It is raised again if it is still slow.
  void Forget(int dp_rank);

  // The raised stragglers.
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
  // The newest step that all reporting pipelines have reached.
  std::int64_t Common() const;
  void Judge(std::int64_t step, StragglerVerdicts& verdicts);
  std::optional<StragglerChange> Judge(std::int64_t step, int number, double x);
  static double Threshold(const Pipeline& pipeline);

  std::map<std::int64_t, std::map<int, Judged>> open_;  // [step][dp_rank]
  std::map<int, Pipeline> pipelines_;
  std::map<int, std::int64_t> newest_;        // Newest step of each pipeline,
  std::map<std::int64_t, int> pipelines_at_;  // and the number of pipelines with this newest step.
  std::int64_t judged_ = -1;                  // The last judged step.
};

}  // namespace perseus::telemetry
