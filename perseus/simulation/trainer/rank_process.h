// A rank of the trainer: a process that computes on one virtual GPU, sends tensors to its
// neighbors, and reports to the client library what it runs, as a training process does.
//
// It is one thread. It sleeps until one of these events: an input arrives; an instruction may
// begin, is about to end, or has ended. On a machine with fewer cores than ranks, threads are woken
// late. This must not cost virtual time, because it would change the comparison of plans. Three
// rules prevent it:
//  1. The next instruction whose input is known waits in the queue of the GPU
//     (VirtualWorker::Enqueue).
//  2. `kLead` before an instruction ends, the rank announces the end to its neighbor, so that the
//     GPU of the neighbor begins on time. If a clock changes after that, the announced time is
//     wrong. The statistics contain the size of this error.
//  3. The end of a step is announced to the parent in the same way.
// RankStatistics has the remaining lateness.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/simulation/trainer/rank_work.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::trainer {

struct RankProcessOptions {
  int pipeline = 0;
  int rank = 0;
  int gpu = 0;                        // On its node.
  std::vector<RankInstruction> work;  // Not empty.
  Nanoseconds p2p = 0;                // The time of a transfer to another rank.
  std::string stages;                 // The stages of its chunks, as in perseus_options.
  int pp_ranks = 0;                   // The pp_ranks of the pipeline.
  int control = -1;                   // The socket to the parent. The caller owns it.
  std::map<int, int> peers;           // Rank, and the socket to it. The caller owns them.
};

// Runs steps until the parent sends kStop or closes its socket, or until SIGTERM arrives (which
// this function blocks and reads). The client library reads its options from the environment. The
// caller reports an error to the parent.
Result<void> RunRankProcess(const virtual_gpu::VirtualNode& node,
                            const RankProcessOptions& options);

}  // namespace perseus::trainer
