// The metrics of the agent for Prometheus. If NVIDIA's DCGM exporter has a metric, its name, labels
// and unit are used, so that existing dashboards work. docs/agent.md lists all metrics.
#pragma once

#include <string>

#include "perseus/runtime/agent/agent_report.h"

namespace perseus::agent {

// Returns the text exposition format, version 0.0.4.
std::string FormatMetrics(const AgentReport& report, const std::string& hostname);

}  // namespace perseus::agent
