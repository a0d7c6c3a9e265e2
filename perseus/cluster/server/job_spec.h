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

// Reads only the key of a registration.
Answer<std::string> ReadRegisteredKey(std::string_view body);
// Reads the body of POST /v1/jobs. Missing members have their defaults. Checks the whole schedule.
Answer<JobSpec> ReadJobSpec(std::string_view body);
// Reads a registered body. Fails only if another version of this program stored it.
Result<JobSpec> StoredJobSpec(std::string_view body);

// Reads a key, which has to fit into paths, log lines and tables. Throws.
std::string ReadJobKey(const json_file::Node& node);

// {"kind": "slowdown", "value": 5}. `gpus`: the number of GPUs of the pipeline, for prices. Throws.
plan::Target ReadTarget(const json_file::Node& node, int gpus);
nlohmann::ordered_json TargetJson(const plan::Target& target);
// Reads the body of PUT …/target.
Answer<plan::Target> ReadTargetBody(std::string_view body, int gpus);

// The target of "no-slowdown", "slowdown-5", "deadline-2.9s", … (Slug in plan/target.h). Nothing if
// the text is not a slug, or if it is the slug of a price, which does not contain the price.
std::optional<plan::Target> TargetOfSlug(std::string_view slug);

}  // namespace perseus::server
