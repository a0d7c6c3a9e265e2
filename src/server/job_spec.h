// A job as it is registered (docs/server.md, "Jobs"), and its targets.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "perseus/base/json_file.h"
#include "perseus/plan/plan_file.h"
#include "perseus/plan/target.h"
#include "perseus/server/answer.h"

namespace perseus {

struct JobSpec {
  std::string key;
  PlannedJob planned;  // `profile` is empty; `model` is of one pipeline.
  std::string gpu_name;
  Target target;
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
Target ReadTarget(const json_file::Node& node, int gpus);
nlohmann::ordered_json TargetJson(const Target& target);
// Of PUT …/target.
Answer<Target> ReadTargetBody(std::string_view body, int gpus);

// "no-slowdown", "slowdown-5", "deadline-2.9s", … as plan/target.h's Slug names them; nothing for
// what is none. Prices cannot be told from their name.
std::optional<Target> TargetOfSlug(std::string_view slug);

}  // namespace perseus
