// A rank of the trainer: a process that computes on one virtual GPU, hands tensors to its
// neighbours, and tells the client library what it runs, as a training process would.
//
// It is one thread that sleeps until something is due: an input arrives, an instruction is about to
// end, has ended, may begin. Three things keep late wake-ups (eight ranks on two cores) from
// costing virtual time, which would be counted as the plan's doing or as the baseline's:
//  1. The next instruction whose input is known waits in the GPU's own queue
//  (VirtualWorker::Enqueue).
//  2. Neighbours are told `kLead` before an instruction ends when that will be, so that their GPUs
//  begin
//     on time. A clock that changes in between makes the forecast wrong; by how much is counted.
//  3. The end of a step is told so, too.
// What remains is counted in RankStatistics.
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
  int gpu = 0;                        // Of the node.
  std::vector<RankInstruction> work;  // At least one.
  Nanoseconds p2p = 0;                // On the wire.
  int control = -1;                   // The socket to the parent,
  std::map<int, int> peers;           // and those to other ranks; all stay the caller's.
};

// Runs steps until the parent says stop or hangs up, or SIGTERM comes (which it blocks and takes).
// The client library gets its options from the environment. The caller tells the parent what went
// wrong.
Result<void> RunRankProcess(const virtual_gpu::VirtualNode& node,
                            const RankProcessOptions& options);

}  // namespace perseus::trainer
