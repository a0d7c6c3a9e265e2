// The agent's numbers for Prometheus. Where NVIDIA's DCGM exporter has a name for something, that
// is the name here, with its labels and unit, so that dashboards find it; docs/agent.md lists all.
#pragma once

#include <string>

#include "perseus/runtime/agent/agent_report.h"

namespace perseus::agent {

// The text exposition format, version 0.0.4.
std::string FormatMetrics(const AgentReport& report, const std::string& hostname);

}  // namespace perseus::agent
