#include "perseus/planning/plan_file/trace_events.h"
#include "perseus/base/json_text.h"

#include <fmt/core.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace perseus::plan_file {
namespace {

// The format has times in microseconds. Three decimals keep every nanosecond.
std::string Microseconds(Nanoseconds time) {
  return fmt::format("{}{}.{:03}", time < 0 ? "-" : "", std::abs(time) / kMicrosecond,
                     std::abs(time) % kMicrosecond);
}

}  // namespace

std::string QuotedForTrace(std::string_view text) {
  using nlohmann::ordered_json;
  return JsonText(ordered_json(text));
}

void TraceEvents::NameProcess(int process, std::string_view name) {
  Add(fmt::format(R"("ph":"M","pid":{},"name":"process_name","args":{{"name":{}}})", process,
                  QuotedForTrace(name)));
  Add(fmt::format(R"("ph":"M","pid":{},"name":"process_sort_index","args":{{"sort_index":{}}})",
                  process, process));
}

void TraceEvents::NameLane(int process, int lane, std::string_view name) {
  Add(fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}})",
                  process, lane, QuotedForTrace(name)));
  Add(fmt::format(
      R"("ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}})",
      process, lane, lane));
}

void TraceEvents::AddSlice(const Slice& slice, std::string_view arguments) {
  Add(fmt::format(
      R"("ph":"X","pid":{},"tid":{},"name":{},"cat":"{}","ts":{},"dur":{},"args":{{{}}})",
      slice.process, slice.lane, QuotedForTrace(slice.name), Name(slice.kind),
      Microseconds(slice.start), Microseconds(slice.duration), arguments));
}

void TraceEvents::AddCounter(int process, std::string_view name, Nanoseconds at,
                             std::string_view unit, std::string_view value) {
  Add(fmt::format(R"("ph":"C","pid":{},"name":{},"ts":{},"args":{{"{}":{}}})", process,
                  QuotedForTrace(name), Microseconds(at), unit, value));
}

std::string TraceEvents::Finish() && {
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + events_ + "\n]}\n";
}

void TraceEvents::Add(std::string_view event) {
  events_ += events_.empty() ? "\n{" : ",\n{";
  events_ += event;
  events_ += '}';
}

std::string InstructionLabel(InstructionKind kind, int microbatch) {
  switch (kind) {
    case InstructionKind::kForward:
      return fmt::format("F{}", microbatch);
    case InstructionKind::kBackward:
      return fmt::format("B{}", microbatch);
    case InstructionKind::kBackwardInput:
      return fmt::format("I{}", microbatch);
    case InstructionKind::kBackwardWeight:
      return fmt::format("W{}", microbatch);
    case InstructionKind::kRecompute:
      return fmt::format("R{}", microbatch);
    case InstructionKind::kOptimizerStep:
      return "O";
    default:
      return microbatch < 0 ? std::string(Name(kind))
                            : fmt::format("{} {}", Name(kind), microbatch);
  }
}

}  // namespace perseus::plan_file
