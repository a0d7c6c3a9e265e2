// Whether a caller may lease GPUs that neither its user was granted nor its being an administrator
// gives it: by a grant to its cgroup, or because the kernel lets it use them.
//
// Thread safety: a plain function, for a thread that may wait.
#pragma once

#include <vector>

#include "perseus/runtime/access/access_check.h"
#include "perseus/runtime/access/answer.h"
#include "perseus/runtime/access/caller.h"

namespace perseus::agent {

struct AccessQuestion {
  Caller caller;
  std::vector<GpuFile> gpus;
  std::vector<protocol::Grant> grants;  // All of the agent.
};

// Refuses (kNotAllowed) a caller without the right, or (kUnavailable) if it is unknown now. May
// take as long as a check of the checker.
Answer<void> JudgeAccess(const Host& host, const AccessQuestion& question, AccessChecker& checker);

}  // namespace perseus::agent
