// Detects which pipelines of a job are slow, from the reports of their steps.
//
// All pipelines end a step together, because they wait for the slowest pipeline. So the time of a
// step does not show which pipeline was slow. The detector compares the time from the beginning of
// the step to the last instruction of the pipeline (busy) with the time in its plan (expected). A
// planned slowdown is part of both times.
//
//   r_p = busy_p / expected_p               x_p = r_p / lower median over pipelines of r
//
// The median removes effects that all pipelines share, such as an optimistic plan or slow storage.
// (For two pipelines, the lower median is the lower value. If both are slow, neither pipeline waits
// for the other.) So a pipeline is judged only if other pipelines reported the same step. The
// detector ignores steps that other pipelines did not report in time, for example after an outage.
// It also ignores a pipeline with an unknown assignment if other pipelines have a known assignment.
//
// Noise. A quiet step is a step of a pipeline that is no straggler, with x below the threshold. 90
// % of the last kPast quiet steps deviate by at most a certain value. s is this value divided by
// 1.645, which is the standard deviation for a normal distribution. (The median deviation would not
// work, because with two pipelines, x is exactly 1 in every other step.) The threshold is 1 +
// max(kLeast, kNoise s). Before the first kLeastPast quiet steps, it is 1 + kUnknown.
//
// A straggler is raised (declared) after kToRaise consecutive steps above the threshold, so one
// slow step raises nothing. The slowdown of the straggler is the least x of these steps. Later the
// slowdown follows the median of the last three steps, if the difference is more than kUpdate. A
// straggler is cleared after kToClear consecutive steps whose excess over 1 is below half of the
// threshold's excess (hysteresis). If the straggler is raised again within kFlapping steps, the
// number of steps to clear it doubles each time, up to kMaxToClear. So a pipeline that is slow
// repeatedly stays raised, because changing plans repeatedly costs more.
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
  double busy_s = 0;  // The pipeline's busy time: the largest value of its nodes.
  // The time in its plan; 0: unknown. If it is unknown for all pipelines, all count as equal.
  double expected_s = 0;
  std::int64_t version = 0;  // The version of the assignment that it followed.
};

struct StragglerChange {
  int dp_rank = 0;
  double slowdown = 1;  // 1: the pipeline is no longer a straggler.
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

  // Adds a step. A step is judged when all pipelines that still report have reported a later step,
  // or when it is three steps behind the newest step. Later reports of this step are ignored. O(log
  // P) for each report of one of P pipelines.
  StragglerVerdicts Add(const PipelineStep& report);

  // Handles a restart of the job, which then counts its steps from 0 again.
  void Restart();
  // Takes over a straggler from another detector.
  void Raise(int dp_rank, double slowdown);

  // The raised stragglers.
  std::map<int, double> Stragglers() const;

 private:
  struct Pipeline {
    std::deque<double> quiet;   // The values of x in quiet steps.
    std::deque<double> latest;  // The last values of x, at most 3.
    std::int64_t version = -1;
    int above = 0;  // Consecutive steps above the threshold.
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
  std::map<int, std::int64_t> newest_;  // The newest step of each pipeline.
  // By step: the number of pipelines with this newest step.
  std::map<std::int64_t, int> pipelines_at_;
  std::int64_t judged_ = -1;  // The last judged step.
};

}  // namespace perseus::telemetry
