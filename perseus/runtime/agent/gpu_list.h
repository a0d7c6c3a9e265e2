// The agent's report as `perseus gpu list` and other clients see it.
//
// Thread safety: a pure function.
#pragma once

#include "perseus/runtime/agent/agent_report.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::agent {

protocol::Listing ListingOf(const AgentReport& report);

}  // namespace perseus::agent
