// The first and the last microbatch of a step, which often take another time than the others.
//
// Causes: FSDP gathers weights before the first forward, and reduces gradients in the last
// backward. PyTorch writes gradients in the first backward, and adds to them in the others: on an
// H100, the first backward took 6 to 9 % less time. A plan has one time for all microbatches of a
// kind, so it does not know the difference. In this time, a small difference is included, and a
// large one is left out like a stall (GpuMeasurements). This file measures the differences.
//
// In each step, the first and the last instruction of a (pp_rank, chunk, kind) are compared with
// the median of those between them. So noise that slows a whole step does not count. Medians are
// used, because durations have a heavy tail.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/units.h"
#include "perseus/runtime/protocol/job_directory/rank_id.h"
#include "perseus/runtime/tuner/job_logs.h"

namespace perseus::tuner {

enum class Edge { kFirst, kLast };

// The instructions that are compared with the others of their step.
struct EdgeGroup {
  int pp_rank = 0;
  int chunk = 0;
  InstructionKind kind = InstructionKind::kForward;
  Edge edge = Edge::kFirst;
  friend auto operator<=>(const EdgeGroup&, const EdgeGroup&) = default;
};

struct EdgeDifference {
  EdgeGroup group;
  double relative = 0;      // The median of (edge / others - 1).
  double difference_s = 0;  // The median of (edge - others).
  int samples = 0;          // One for each GPU and step.
};

class EdgeMicrobatches {
 public:
  // Smaller differences are not reported. With 8 microbatches, they change the sum of a kind by
  // less than 0.25 %.
  static constexpr double kLeastDifference = 0.02;
  // A difference is certain if it is this many standard errors of the median away from 0. A job has
  // dozens of groups, and errors are not normal.
  static constexpr double kCertain = 5;
  static constexpr std::size_t kLeastSamples = 8;

  // Adds the kept steps [first, last] of these ranks. Only steps at one clock count, because an
  // instruction may begin at the clock of the one before it. At least three instructions between
  // the first and the last are needed.
  void Add(const JobLogs& logs, const std::set<protocol::RankId>& ranks, std::int64_t first,
           std::int64_t last);
  // The groups that certainly differ from the others.
  std::vector<EdgeDifference> Differences() const;

 private:
  struct Samples {
    std::vector<double> relative;
    std::vector<double> seconds;
  };
  std::map<EdgeGroup, Samples> samples_;
};

// Returns a sentence with the differences, the largest first. Empty if there are none.
std::string DescribeEdges(std::vector<EdgeDifference> differences);

}  // namespace perseus::tuner
