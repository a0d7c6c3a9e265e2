#include "perseus/cluster/node/assignment_trace.h"

#include <algorithm>
#include <utility>

#include "perseus/base/random_id.h"
#include "perseus/cluster/http/trace_context.h"

namespace perseus::node {
namespace {

constexpr Nanoseconds kMicrosecond = 1'000;
constexpr std::size_t kSpanIdBytes = 8;
// The server refuses more in one report. While it is unreachable, the newest count.
constexpr std::size_t kMostUnsentSpans = 8;

// The clock may be set back in between.
void AddSpan(std::vector<protocol::NodeSpan>& unsent, protocol::NodeSpan span) {
  span.begin_us = std::max<std::int64_t>(span.begin_us, 0);
  span.end_us = std::max(span.end_us, span.begin_us);
  if (unsent.size() == kMostUnsentSpans) unsent.erase(unsent.begin());
  unsent.push_back(std::move(span));
}

}  // namespace

void AssignmentTrace::Received(const protocol::AssignmentEvent& assignment, Nanoseconds now) {
  // The server may send an assignment again, with plans of further ranks, or an older one.
  if (job_ == assignment.job && version_ >= assignment.version) return;
  const auto trace = http::ParseTraceParent(assignment.traceparent);
  trace_ = trace ? trace->trace : "";
  parent_ = trace ? trace->span : "";
  applied_span_.clear();
  job_ = assignment.job;
  version_ = assignment.version;
  received_ = now;
}

void AssignmentTrace::Applied(std::int64_t version, Nanoseconds now) {
  if (trace_.empty() || version != version_ || !applied_span_.empty()) return;
  applied_span_ = RandomHex(kSpanIdBytes);
  AddSpan(unsent_, {.kind = protocol::NodeSpan::Kind::kApplied,
                    .trace = trace_,
                    .span = applied_span_,
                    .parent = parent_,
                    .begin_us = received_ / kMicrosecond,
                    .end_us = now / kMicrosecond,
                    .version = version_});
}

void AssignmentTrace::Follows(const RankFollower::Following& following) {
  if (trace_.empty() || applied_span_.empty() || following.version != version_ ||
      following.since_step < 0) {
    return;
  }
  AddSpan(unsent_, {.kind = protocol::NodeSpan::Kind::kFirstStep,
                    .trace = std::exchange(trace_, ""),
                    .span = RandomHex(kSpanIdBytes),
                    .parent = applied_span_,
                    .begin_us = following.begin / kMicrosecond,
                    .end_us = following.end / kMicrosecond,
                    .version = version_,
                    .step = following.since_step});
}

}  // namespace perseus::node
