// The registration of a job (docs/server.md, "Jobs"), and its targets.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/json_file.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/cluster/store/records.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::job_planning {

struct JobSpec {
  std::string key;
  plan_file::PlannedJob planned;  // `profile` is empty. `model` describes one pipeline.
  std::string gpu_name;
  std::optional<double> most_changes_per_s;  // The most clock changes of one GPU in a plan.
  plan::Target target;
  bool detects_stragglers = true;
  // If a plan makes steps slower than the default clocks by more than this percentage, the server
  // withdraws the plan.
  double most_harm_percent = 1;
  // The most clock changes of one GPU in an iteration. Empty: no limit.
  std::optional<int> most_switches;
  std::string owner = {};  // The team or person. Empty: the owner of the token, or none.
  // The user whose ranks may join the job: a name or a user id of the nodes. Empty: every user.
  std::string user = {};
};

// Functions that take a json_file::Node throw an Error.
inline constexpr int kDeepestJobSpec = 4;

// Reads only the key of a registration.
std::string ReadRegisteredKey(const json_file::Node& body);
// Reads a registration (the body of POST /v1/jobs). Missing members have their defaults. Checks the
// whole schedule.
JobSpec ReadJobSpec(const json_file::Node& body);
// Reads a registration from the store. Fails only if another version of this program stored the
// registration.
Result<JobSpec> StoredJobSpec(std::string_view body);

// Reads the key of a job. A key has to fit into paths, log lines and tables.
std::string ReadJobKey(const json_file::Node& node);

// Reads the name of a team or a person.
std::string ReadOwner(const json_file::Node& node);

// The target of a job. It may end by itself.
struct JobTarget {
  plan::Target target;
  // When the job returns to the target `then`. 0: never.
  Milliseconds expires = 0;
  plan::Target then = {};
};

// Reads {"kind": "slowdown", "value": 5}. `gpus`: the number of GPUs of the pipeline, for prices.
plan::Target ReadTarget(const json_file::Node& node, int gpus);
nlohmann::ordered_json TargetJson(const plan::Target& target);

// Reads the body of PUT …/target at `now`: a target that may have `expires_in`, in seconds. Such a
// target returns to `before`, or to the target to which `before` returns.
JobTarget ReadNewTarget(const json_file::Node& node, const JobTarget& before, Milliseconds now);
// Returns the target of the job from the store, or `registered` if the job has no other target.
Result<JobTarget> TargetOf(const store::JobRecord& job, const plan::Target& registered);
// Reads and writes a target as the store and the answers of the server have it: {"kind":
// "power_cap", "value": 1000, "expires": "2026-11-30T20:00:00.000Z", "then": {"kind": …}}.
Result<JobTarget> ParseJobTarget(std::string_view text, int gpus);
nlohmann::ordered_json JobTargetJson(const JobTarget& target);
// "power cap 1000 W until 2026-11-30T20:00:00.000Z, then no slowdown".
std::string Describe(const JobTarget& target);

// Returns the target of "no-slowdown", "slowdown-5", "deadline-2.9s", … (Slug in plan/target.h).
// Returns nullopt if the text is not a slug. Also returns nullopt for the slug of a price target,
// because this slug does not contain the price.
std::optional<plan::Target> TargetOfSlug(std::string_view slug);

}  // namespace perseus::job_planning
