// Timelines of small jobs, for tests. A tracer writes timelines in the same format.
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

// Writes the events in the given order, then the thread names. seq_id counts the events of each
// name on each rank.
std::string FormatTimeline(const std::vector<TracedEvent>& events);

// Two pipelines of two ranks, two microbatches, 1F1B. Rank 1 of pipeline 1 takes 1.5 times as long
// as rank 1 of pipeline 0. Every transfer takes 1 ms.
//
//   ms          0    10        21             41 42             62         72 73      93
//   p0 rank 0   |[F0]>|[ F1 ]                  <>|[     B0     ]             <|[  B1  ]
//      rank 1          [ F0 ][      B0      ]  <>|[ F1 ][      B1      ]     >
//   ms          0    10        21    26             56 57   72   77         102 103       123
//   p1 rank 0   |[F0]>|[ F1 ]                        <>|[    B0   ]             <|[  B1  ]
//      rank 1          [   F0    ][       B0       ] <>|[  F1  ][     B1       ] >
//
// Collectives follow: grads-reduce-scatter of each rank with the same rank of the other pipeline
// (5 ms; rank 1 from 103 ms, rank 0 from 123 ms), optimizer-clip-main-grad of all four ranks (128
// to 129 ms) and optimizer (2 ms, until 131 ms).
struct TimelineSpec {
  int first_step = 7;
  int steps = 1;
  double late_ms = 0;  // Each rank starts its step this much later than possible, after a gc event.
  // True: events of communication begin when their rank is ready, so they include waiting.
  bool waits_are_recorded = false;
  // The factor on the times of rank 1 of pipeline 1, by step. The last value applies to all later
  // steps.
  std::vector<double> slowness = {1.5};
};
std::vector<TracedEvent> TwoPipelines(const TimelineSpec& spec = {});

}  // namespace perseus
