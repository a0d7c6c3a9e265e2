// The messages between a node daemon and the server (docs/openapi.yaml, tag "nodes"): for each
// message, the type, the function that writes it, and the function that reads it. This module
// contains values and JSON, but no HTTP.
//
//   node to server   Attachment   PUT /v1/nodes/N/jobs/J     the ranks of a job on the node
//                    JobReport    POST /v1/nodes/N/reports   the steps that they ran
//   server to node   ServerEvent  GET /v1/nodes/N/events     what the ranks have to follow
//
// The server refuses an unknown key, so that a user of the API finds a mistake at once. A node
// ignores an unknown key, so that an older node works with a newer server.
//
// Readers that take a json_file::Node throw an Error, with the place of the mistake.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/protocol/job_directory/rank_id.h"

namespace perseus::protocol {

// The maximum nesting depth of the JSON in each message.
inline constexpr int kDeepestAttachment = 4;
inline constexpr int kDeepestReports = 6;

// ---- Attachment: node to server ----

struct AttachedRank {
  RankId name;
  std::string gpu = {};  // The UUID of the GPU. Empty if unknown.
  friend bool operator==(const AttachedRank&, const AttachedRank&) = default;
};
struct Attachment {
  std::vector<AttachedRank> ranks;  // Each rank occurs once.
  bool restarted = false;           // The job's step numbers begin again at a lower number.
  std::string instance = {};        // Identifies the process of the node. May be empty.
  // The names of the user of the ranks: the user's name, if there is one, and the user id.
  std::vector<std::string> users = {};
  friend bool operator==(const Attachment&, const Attachment&) = default;
};
std::string FormatAttachment(const Attachment& attachment);
// Refuses ranks above `highest`, and more ranks than a node may have.
Attachment ReadAttachment(const json_file::Node& body, const HighestRanks& highest);

// Formats only the list of ranks, as the server stores it.
std::string FormatRanks(std::span<const AttachedRank> ranks);
Result<std::vector<AttachedRank>> ParseRanks(std::string_view text);

// ---- Reports: node to server ----

// One step of the ranks of one pipeline on the node.
struct StepReport {
  std::int64_t step = 0;
  int dp_rank = 0;
  // The time from the end of the previous step to the end of this step. 0: unknown.
  double time_s = 0;
  // The time from the beginning of the step to the end of its last computation.
  double busy_s = 0;
  // The energy of the GPUs of these ranks during time_s, if all these GPUs are measured.
  std::optional<double> energy_j = {};
  std::int64_t version = 0;  // The lowest server version that a rank followed; 0: none.
  int ranks = 0;             // How many ranks are in this report.
  int limited = 0;  // How many of these ranks had a clock that heat or another program limited.
  int without_clocks = 0;  // How many of these ranks followed a plan without a lease of the GPU.
  friend bool operator==(const StepReport&, const StepReport&) = default;
};
struct JobReport {
  std::string job;                // The id or the key of the job.
  std::int64_t acknowledged = 0;  // The newest assignment in the job directory.
  std::int64_t following = 0;     // The assignment that all ranks on this node follow; 0: none.
  std::int64_t since_step = -1;   // The first step at which all these ranks followed it.
  std::vector<StepReport> steps = {};
  // How many of the attached ranks run. Empty: unknown, or the server is older (kRunningKey).
  std::optional<int> running = {};
  friend bool operator==(const JobReport&, const JobReport&) = default;
};
std::string FormatReports(std::span<const JobReport> jobs);
// The key of JobReport::running. A server refuses keys of a report that it does not know. So its
// answer to reports lists the newer keys that it takes ("takes"), and a node sends no others.
inline constexpr std::string_view kRunningKey = "running";
// The reports in one message. The jobs of a node belong to different users, so a job with invalid
// numbers does not affect the other jobs.
struct Reports {
  std::vector<JobReport> jobs;
  std::map<std::string, std::string> refused;  // Why a report is invalid, by its `job`.
};
// Throws if no job has a valid report, or if a report does not name its job.
Reports ReadReports(const json_file::Node& body);
// Fails (kInput) if ReadReports refuses the step. A node must not send such a step.
Result<void> CheckStep(const StepReport& step);

// Formats only the list of steps, for messages between replicas of the server.
nlohmann::ordered_json StepsJson(std::span<const StepReport> steps);
std::vector<StepReport> ReadSteps(const json_file::Node& list);

// ---- Events: server to node ----

// Whether the text is "p-" and 16 hexadecimal digits. Such an id can be the name of a file.
bool IsPlanId(std::string_view text);

struct AssignmentEvent {
  std::string job;  // The server's id of the job.
  std::string key;  // The user's name of the job.
  std::int64_t version = 1;
  std::int64_t from_step = 0;
  std::map<int, std::string> plans;  // Ids of plans by dp_rank. Empty: the default clocks.
  std::string target = {};           // The target in words.
  std::string reason = {};
  // Plan files by id, for `plans` and `upcoming`. Each file has at least the instructions of the
  // pp_ranks that are on the node.
  std::map<std::string, std::string> files = {};
  std::vector<std::string> upcoming = {};  // Ids of plans that the server is likely to assign next.
  friend bool operator==(const AssignmentEvent&, const AssignmentEvent&) = default;
};
// The job has ended.
struct EndedEvent {
  std::string job;
  std::string key = {};  // Empty if the job was deleted.
  friend bool operator==(const EndedEvent&, const EndedEvent&) = default;
};
// Empty: an event that this version does not know.
using ServerEvent = std::variant<std::monostate, AssignmentEvent, EndedEvent>;

// The names of the events.
inline constexpr std::string_view kAssignmentEvent = "assignment";
inline constexpr std::string_view kEndedEvent = "ended";

Result<ServerEvent> ParseEvent(std::string_view name, std::string_view data);
std::string FormatEvent(const EndedEvent& event);
// Formats the event as a list of texts. Joined together, these texts are the event. The text of a
// plan file is a separate part, so that many events can share it. `files` replaces `event.files`.
using SharedText = std::shared_ptr<const std::string>;
std::vector<SharedText> FormatEvent(const AssignmentEvent& event,
                                    std::span<const std::pair<std::string, SharedText>> files);

}  // namespace perseus::protocol
