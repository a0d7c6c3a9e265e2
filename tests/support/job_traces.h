// Timelines of small jobs, for tests: what a tracer would write.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace perseus {

struct TracedEvent {
  std::string name;
  int dp_rank = 0;
  int pp_rank = 0;
  int step = 0;
  double start_ms = 0;
  double end_ms = 0;
  int microbatch = -1;
};

// In the order given, thread names last. seq_id counts the events of a name on a rank.
std::string FormatTimeline(const std::vector<TracedEvent>& events);

// Two pipelines of two ranks, two microbatches, 1F1B; rank 1 of pipeline 1 takes half as long
// again. Every transfer takes 1 ms.
//
//   ms          0    10        21             41 42             62         72 73      93
//   p0 rank 0   |[F0]>|[ F1 ]                  <>|[     B0     ]             <|[  B1  ]
//      rank 1          [ F0 ][      B0      ]  <>|[ F1 ][      B1      ]     >
//   ms          0    10        21    26             56 57   72   77         102 103       123
//   p1 rank 0   |[F0]>|[ F1 ]                        <>|[    B0   ]             <|[  B1  ]
//      rank 1          [   F0    ][       B0       ] <>|[  F1  ][     B1       ] >
//
// Then, each with its counterpart in the other pipeline: grads-reduce-scatter (5 ms; rank 1 at 103,
// rank 0 at 123), optimizer-clip-main-grad (all four, 128 to 129), optimizer (2 ms, to 131).
struct TimelineSpec {
  int first_step = 7;
  int steps = 1;
  double late_ms = 0;                    // The host begins every step so much later than it could.
  bool waits_are_recorded = false;       // Communication is recorded from when its rank was ready.
  std::vector<double> slowness = {1.5};  // Of rank 1 of pipeline 1, by step; the last one stays.
};
std::vector<TracedEvent> TwoPipelines(const TimelineSpec& spec = {});
inline constexpr double kTwoPipelinesMs = 131;

}  // namespace perseus
