// The metrics of the agent for Prometheus. Where NVIDIA's DCGM exporter has a name, this name is
// used, with its labels and units, so that dashboards find it. docs/agent.md lists all metrics.
#pragma once

#include <string>

#include "perseus/runtime/agent/agent_report.h"

namespace perseus::agent {

// The text exposition format, version 0.0.4.
std::string FormatMetrics(const AgentReport& report, const std::string& hostname);

}  // namespace perseus::agent
