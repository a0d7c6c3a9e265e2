// A job as it is registered (docs/server.md, "Jobs"), and its targets.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "perseus/base/json_file.h"
#include "perseus/cluster/server/answer.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::server {

struct JobSpec {
  std::string key;
  plan_file::PlannedJob planned;  // `profile` is empty; `model` is of one pipeline.
  std::string gpu_name;
  plan::Target target;
  bool detects_stragglers = true;
};

// The key alone, of the same body.
Answer<std::string> ReadRegisteredKey(std::string_view body);
// Of POST /v1/jobs. What is left out has its default; the schedule is checked whole.
Answer<JobSpec> ReadJobSpec(std::string_view body);
// The same, of a body that was registered: fails only for what another version wrote.
Result<JobSpec> StoredJobSpec(std::string_view body);

// Keys stand in paths, log lines and tables. Throws.
std::string ReadJobKey(const json_file::Node& node);

// {"kind": "slowdown", "value": 5}. `gpus`: of the pipeline, for prices. Throws.
plan::Target ReadTarget(const json_file::Node& node, int gpus);
nlohmann::ordered_json TargetJson(const plan::Target& target);
// Of PUT …/target.
Answer<plan::Target> ReadTargetBody(std::string_view body, int gpus);

// "no-slowdown", "slowdown-5", "deadline-2.9s", … as plan/target.h's Slug names them; nothing for
// what is none. Prices cannot be told from their name.
std::optional<plan::Target> TargetOfSlug(std::string_view slug);

}  // namespace perseus::server
