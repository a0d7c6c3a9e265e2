// The spans of the server and of its nodes (docs/how-to/opentelemetry.md):
//
//   PUT /v1/jobs/{job}/target      a request that changes something, or whose caller records it
//     plan                         the planning that answers the change
//       apply assignment           on each node: from its arrival to the job directory
//         first step on plan       on each node: the first step in which all ranks followed it
//
// Times of nodes are those of their clocks.
//
// Thread safe. No call blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/cluster/http/message.h"
#include "perseus/cluster/job_planning/planning_workers.h"
#include "perseus/cluster/otlp/exporter.h"
#include "perseus/runtime/protocol/node_messages.h"

namespace perseus::server {

class Traces {
 public:
  explicit Traces(otlp::Exporter& exporter) : exporter_(exporter) {}

  // Whether a person or a script changes something: such requests are recorded even if the caller
  // records nothing. Nodes and profilers send requests all the time.
  static bool IsOfPerson(const http::Request& request);

  void AddRequest(const http::Request& request, std::string_view pattern, int status,
                  double seconds);
  void AddPlanning(const job_planning::PlanningReport& report);
  // `not_attached`: the jobs whose reports were ignored.
  void AddNode(const std::string& node, const std::vector<protocol::JobReport>& reports,
               const std::vector<std::string>& not_attached);

 private:
  otlp::Exporter& exporter_;
};

}  // namespace perseus::server
