#include "perseus/simulation/replay/torch_profiler.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>

#include "perseus/base/excerpt.h"
#include "perseus/base/index.h"
#include "perseus/base/wording.h"

namespace perseus::replay {
namespace {

constexpr std::string_view kAction = "PP:";
constexpr std::string_view kStep = "ProfilerStep#";
constexpr std::string_view kOptimizer = "Optimizer.step#";
constexpr int kLargestStage = 1'000'000;

// Removes a whole number from the front of `text`, and returns it.
std::optional<int> TakeNumber(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

int NameNumber(std::string_view name) {
  const auto known = KnownEvents();
  return static_cast<int>(std::ranges::find(known, name, &EventName::name) - known.begin());
}

std::string StageList(const std::vector<int>& stages) {
  return fmt::format("stage{} {}", stages.size() == 1 ? "" : "s", fmt::join(stages, ", "));
}

}  // namespace

Result<void> TorchProfilerFile::Take(const TraceEvent& event) {
  if (event.phase != "X") return {};
  const std::string_view name = event.name;
  if (name.starts_with(kStep)) {
    std::string_view rest = name.substr(kStep.size());
    const auto step = TakeNumber(rest);
    if (step) first_step_ = std::min(first_step_.value_or(*step), std::int64_t{*step});
    return {};
  }
  if (name.starts_with(kAction)) return TakeAction(event, name.substr(kAction.size()));
  if (name.starts_with(kOptimizer) && event.category == "gpu_user_annotation") {
    PERSEUS_ASSIGN_OR_RETURN(auto action, ActionOf(event));
    action.event.kind = EventKind::kLocal;
    action.event.name = NameNumber("optimizer");
    actions_.push_back(action);
  }
  return {};
}

Result<void> TorchProfilerFile::TakeAction(const TraceEvent& event, std::string_view text) {
  if (text.starts_with('(') || text.find_first_of("IW") != std::string_view::npos) {
    const bool is_communication = text.find("SHARD") != std::string_view::npos;
    if (is_communication || text.ends_with("BATCH_P2P")) return {};
    return Fail(
        "event {}: {} is {}, which replay does not support (record a schedule with forwards "
        "and full backwards, such as interleaved 1F1B)",
        event.index, Excerpt(event.name),
        text.starts_with('(') ? "an overlap of actions" : "a part of a split backward");
  }
  const auto stage = TakeNumber(text);
  const char letter = text.empty() ? ' ' : text.front();
  if (!stage || (letter != 'F' && letter != 'B')) return {};  // A communication.
  text.remove_prefix(1);
  const auto microbatch = TakeNumber(text);
  if (!microbatch || !text.empty()) return {};
  has_actions_ = true;
  if (event.category != "gpu_user_annotation") return {};
  PERSEUS_ASSIGN_OR_RETURN(auto action, ActionOf(event));
  if (*stage > kLargestStage) return Fail("event {}: the stage is out of range", event.index);
  action.event.kind = letter == 'F' ? EventKind::kForward : EventKind::kBackward;
  action.event.name = NameNumber(letter == 'F' ? "forward-compute" : "backward-compute");
  action.event.stage = *stage;
  action.event.microbatch = *microbatch;
  busy_[action.stream] += action.event.duration;
  actions_.push_back(action);
  return {};
}

Result<TorchProfilerFile::Action> TorchProfilerFile::ActionOf(const TraceEvent& event) const {
  constexpr double kLongestMicroseconds = 1e10;  // So that the sum over a file does not overflow.
  const double start = event.timestamp_us.value_or(-1);
  const double duration = event.duration_us.value_or(-1);
  // These comparisons are false for NaN.
  if (!(start >= 0 && start <= kLatestMicroseconds && duration >= 0 &&
        duration <= kLongestMicroseconds)) {
    return Fail("event {} ({}): ts or dur is not a time (expected microseconds)", event.index,
                Excerpt(event.name));
  }
  Action action;
  action.event.index = event.index;
  action.event.start = std::llround(start * kMicrosecond);
  action.event.duration = std::llround(duration * kMicrosecond);
  action.stream = {event.process.value_or(0), event.thread.value_or(0)};
  return action;
}

Result<ProfiledRank> TorchProfilerFile::Finish(const TraceHeader& header,
                                               std::int64_t other_files) && {
  if (!has_actions_) {
    return Fail(
        "this trace of torch.profiler does not name the actions of a pipeline (torch 2.10 and "
        "later "
        "name them, such as PP:0F0, with every schedule but Schedule1F1B and ScheduleGPipe. Use "
        "ScheduleInterleaved1F1B, or record a timeline as in docs/replay.md)");
  }
  if (busy_.empty()) {
    return Fail(
        "this trace of torch.profiler has no times of the GPU for the actions of the pipeline "
        "(profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])");
  }
  const auto stream =
      std::ranges::max_element(busy_, {}, [](const auto& one) { return one.second; });
  std::erase_if(actions_, [&](const Action& action) { return action.stream != stream->first; });
  std::ranges::sort(actions_, {}, [](const Action& action) {
    return std::tuple(action.event.start, action.event.index);
  });
  ProfiledRank rank;
  rank.rank = header.rank.value_or(other_files);
  rank.repeats_another = header.first_tp_rank.value_or(rank.rank) != rank.rank;
  std::map<std::tuple<int, EventKind, int>, std::int64_t> times;
  std::set<int> stages;
  std::int64_t step = 0;
  for (const Action& action : actions_) {
    const JobEvent& event = action.event;
    if (IsComputation(event.kind)) {
      stages.insert(event.stage);
      step = times[{event.stage, event.kind, event.microbatch}]++;
    }
    rank.events.push_back({event, first_step_.value_or(0) + step});
  }
  rank.stages.assign(stages.begin(), stages.end());
  return rank;
}

Result<std::vector<StepEvent>> PlaceProfiledRanks(std::vector<ProfiledRank> ranks) {
  std::erase_if(ranks, [](const ProfiledRank& rank) { return rank.repeats_another; });
  std::ranges::sort(ranks, {}, &ProfiledRank::rank);
  std::map<std::vector<int>, std::vector<ProfiledRank*>> ranks_of_stages;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0 && ranks[i].rank == ranks[i - 1].rank) {
      return Fail("two files are of rank {} (give each file once)", ranks[i].rank);
    }
    ranks_of_stages[ranks[i].stages].push_back(&ranks[i]);
  }
  std::set<int> seen;
  std::vector<StepEvent> events;
  const std::size_t pipelines =
      ranks_of_stages.empty() ? 0 : ranks_of_stages.begin()->second.size();
  int pp_rank = 0;
  for (const auto& [stages, same] : ranks_of_stages) {
    for (const int stage : stages) {
      if (seen.insert(stage).second) continue;
      return Fail(
          "rank {} has {}, but another rank has stage {} with other stages (a stage is on "
          "one rank of a pipeline)",
          same[0]->rank, StageList(stages), stage);
    }
    if (same.size() != pipelines) {
      return Fail("{} of {}, but {} of {} (give the files of all ranks)",
                  Counted(std::ssize(same), "file"), StageList(stages),
                  Counted(static_cast<std::int64_t>(pipelines), "file"),
                  StageList(ranks_of_stages.begin()->first));
    }
    for (std::size_t pipeline = 0; pipeline < same.size(); ++pipeline) {
      for (StepEvent& one : same[pipeline]->events) {
        one.event.dp_rank = static_cast<int>(pipeline);
        one.event.pp_rank = pp_rank;
        const auto chunk = std::ranges::find(stages, one.event.stage) - stages.begin();
        one.event.chunk = IsComputation(one.event.kind) ? static_cast<int>(chunk) : 0;
        events.push_back(one);
      }
    }
    ++pp_rank;
  }
  if (!seen.empty() && static_cast<int>(seen.size()) != *seen.rbegin() + 1) {
    int missing = 0;
    while (seen.contains(missing)) ++missing;
    return Fail("stage {} is in no file, but stage {} is (give the files of all ranks)", missing,
                *seen.rbegin());
  }
  return events;
}

}  // namespace perseus::replay
