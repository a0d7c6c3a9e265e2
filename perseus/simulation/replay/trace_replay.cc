#include "perseus/simulation/replay/trace_replay.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "perseus/base/index.h"

namespace perseus::replay {
namespace {

// The indices of events that communicate with each other, and so begin together, in ascending
// order.
using Group = std::vector<int>;
// (name, chunk, sequence, dp_rank, pp_rank) of a group. For a transfer, name and pp_rank are those
// of the sender. -1 means all.
using GroupKey = std::tuple<int, int, int, int, int>;

class GroupFinder {
 public:
  GroupFinder(const JobTrace& trace, const RecordedStep& step) : trace_(trace), step_(step) {}

  Result<std::vector<Group>> Find() {
    std::map<GroupKey, Group> groups;
    for (std::size_t i = 0; i < step_.events.size(); ++i) {
      const JobEvent& event = step_.events[i];
      if (!IsTransfer(event.kind) && !IsCollective(event.kind)) continue;
      Group& group = groups[KeyOf(event)];
      // Events are sorted by rank, so those of the same rank are the last ones. There are at most
      // two.
      for (auto other = group.rbegin(); other != group.rend(); ++other) {
        const JobEvent& same = step_.events[At(*other)];
        if (same.dp_rank != event.dp_rank || same.pp_rank != event.pp_rank) break;
        if (same.name == event.name) {
          return Fail("{}: event {} has the same seq_id {} (number the events of a name from 0)",
                      Describe(event, step_.number), same.index, event.sequence);
        }
      }
      group.push_back(static_cast<int>(i));
    }
    std::vector<Group> found;
    for (auto& [key, group] : groups) {
      PERSEUS_RETURN_IF_ERROR(CheckMembers(group));
      found.push_back(std::move(group));
    }
    return found;
  }

 private:
  GroupKey KeyOf(const JobEvent& event) const {
    const int pp_ranks = trace_.pp_ranks;
    const auto of_sender = [&](EventKind send, int rank) {
      return GroupKey{-1 - static_cast<int>(send), 0, event.sequence, event.dp_rank,
                      (rank + pp_ranks) % pp_ranks};
    };
    switch (event.kind) {
      case EventKind::kForwardReceive:
        return of_sender(EventKind::kForwardSend, event.pp_rank - 1);
      case EventKind::kBackwardReceive:
        return of_sender(EventKind::kBackwardSend, event.pp_rank + 1);
      case EventKind::kForwardSend:
      case EventKind::kBackwardSend:
        return of_sender(event.kind, event.pp_rank);
      case EventKind::kDataParallel:
        return {event.name, event.chunk, event.sequence, -1, event.pp_rank};
      case EventKind::kPipeline:
        return {event.name, event.chunk, event.sequence, event.dp_rank, -1};
      default:
        return {event.name, event.chunk, event.sequence, -1, -1};
    }
  }

  Result<void> CheckMembers(const Group& group) const {
    const JobEvent& event = step_.events[At(group.front())];
    const int members = static_cast<int>(group.size());
    if (IsTransfer(event.kind)) {
      if (members == 2) return {};
      const bool is_send =
          event.kind == EventKind::kForwardSend || event.kind == EventKind::kBackwardSend;
      const bool is_forward =
          event.kind == EventKind::kForwardSend || event.kind == EventKind::kForwardReceive;
      const int other = event.pp_rank + (is_send == is_forward ? 1 : -1) + trace_.pp_ranks;
      return Fail("{}: pp_rank {} has no {}-{} of seq_id {} (record both sides)",
                  Describe(event, step_.number), other % trace_.pp_ranks,
                  is_forward ? "forward" : "backward", is_send ? "recv" : "send", event.sequence);
    }
    const int wanted = event.kind == EventKind::kDataParallel ? trace_.pipelines
                       : event.kind == EventKind::kAllRanks   ? trace_.gpus()
                                                              : members;
    if (members == wanted) return {};
    std::vector<bool> is_there(At(wanted), false);
    for (const int member : group) {
      const JobEvent& other = step_.events[At(member)];
      is_there[At(event.kind == EventKind::kDataParallel
                      ? other.dp_rank
                      : other.dp_rank * trace_.pp_ranks + other.pp_rank)] = true;
    }
    const auto missing =
        static_cast<int>(std::find(is_there.begin(), is_there.end(), false) - is_there.begin());
    return Fail(
        "{}: dp_rank {}, pp_rank {} does not take part in it (record it on every rank that does)",
        Describe(event, step_.number),
        event.kind == EventKind::kDataParallel ? missing : missing / trace_.pp_ranks,
        event.kind == EventKind::kDataParallel ? event.pp_rank : missing % trace_.pp_ranks);
  }

  const JobTrace& trace_;
  const RecordedStep& step_;
};

// The key of events whose host delays can be compared across steps: (rank, name, whether the event
// is the first one with this name). The preceding event is not in the key, because if two events
// end together, their order can vary between steps.
using DelayKey = std::tuple<int, int, bool>;

// The graph of a step, still without host delays.
struct Unfinished {
  StepGraph graph;
  std::vector<Nanoseconds> observed_delays;  // By event.
  std::vector<DelayKey> delay_keys;          // By event.
};

class StepBuilder {
 public:
  StepBuilder(const JobTrace& trace, const RecordedStep& step, Nanoseconds clock_tolerance)
      : trace_(trace), step_(step), clock_tolerance_(clock_tolerance) {}

  Result<Unfinished> Build() {
    const std::size_t events = step_.events.size();
    StepGraph& graph = result_.graph;
    graph.step = &step_;
    for (const JobEvent& event : step_.events) graph.durations.push_back(event.duration);
    PERSEUS_ASSIGN_OR_RETURN(auto order, OrderWithinRanks(step_));
    waits_ = std::move(order);
    PERSEUS_RETURN_IF_ERROR(WaitForInputs());
    result_.observed_delays.resize(events);
    result_.delay_keys.resize(events);
    PERSEUS_ASSIGN_OR_RETURN(auto groups, GroupFinder(trace_, step_).Find());
    for (int i = 0; i < static_cast<int>(events); ++i) {
      const EventKind kind = step_.events[At(i)].kind;
      if (!IsTransfer(kind) && !IsCollective(kind)) NoteDelay({i});
    }
    for (const Group& group : groups) {
      PERSEUS_RETURN_IF_ERROR(Join(group));
    }
    graph.first_waited.push_back(0);
    for (std::vector<int>& waits : waits_) {
      std::sort(waits.begin(), waits.end());
      graph.waited.insert(graph.waited.end(), waits.begin(), waits.end());
      graph.first_waited.push_back(static_cast<int>(graph.waited.size()));
    }
    PERSEUS_RETURN_IF_ERROR(Sort());
    return std::move(result_);
  }

 private:
  // Without recorded transfers, a computation waits for the one that makes its input.
  Result<void> WaitForInputs() {
    std::map<std::tuple<int, EventKind, int, int>, int> makers;
    for (std::size_t i = 0; i < step_.events.size(); ++i) {
      const JobEvent& event = step_.events[i];
      if (!IsComputation(event.kind) || event.stage < 0) continue;
      makers[{event.dp_rank, event.kind, event.stage, event.microbatch}] = static_cast<int>(i);
    }
    for (std::size_t i = 0; i < step_.events.size(); ++i) {
      const JobEvent& event = step_.events[i];
      if (!IsComputation(event.kind) || event.stage < 0) continue;
      const int before = event.stage + (event.kind == EventKind::kForward ? -1 : 1);
      const auto maker = makers.find({event.dp_rank, event.kind, before, event.microbatch});
      if (maker == makers.end()) continue;
      const JobEvent& input = step_.events[At(maker->second)];
      if (event.start < input.end() - clock_tolerance_) {
        return Fail(
            "{}: it begins {:.3f} ms before its input is complete, event {} on pp_rank {}: a clock "
            "jumps (leave the step out, or raise `clock_tolerance`)",
            Describe(event, step_.number), ToMilliseconds(input.end() - event.start), input.index,
            input.pp_rank);
      }
      waits_[i].push_back(maker->second);
      std::ranges::sort(waits_[i]);
      waits_[i].erase(std::unique(waits_[i].begin(), waits_[i].end()), waits_[i].end());
    }
    return {};
  }

  // Adds one synchronization node (a meeting) for the group. The meeting waits for every event that
  // any member waited for. Then each member waits only for the meeting.
  Result<void> Join(const Group& group) {
    NoteDelay(group);
    const JobEvent* last = &step_.events[At(group.front())];
    const int meeting = static_cast<int>(waits_.size());
    std::vector<int> waits;
    for (const int member : group) {
      const JobEvent& event = step_.events[At(member)];
      if (event.start > last->start) last = &event;
      waits.insert(waits.end(), waits_[At(member)].begin(), waits_[At(member)].end());
    }
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    waits_.push_back(std::move(waits));
    for (const int member : group) {
      const JobEvent& event = step_.events[At(member)];
      if (event.end() < last->start - clock_tolerance_) {
        return Fail(
            "{}: it ends {:.3f} ms before its counterpart, event {} on dp_rank {}, pp_rank {}, "
            "begins: one of the clocks jumps (leave the step out, or correct ts)",
            Describe(event, step_.number), ToMilliseconds(last->start - event.end()), last->index,
            last->dp_rank, last->pp_rank);
      }
      result_.graph.durations[At(member)] = std::max<Nanoseconds>(0, event.end() - last->start);
      waits_[At(member)] = {meeting};
    }
    return {};
  }

  // Call it before Join, while each member still waits only for events of its own rank.
  void NoteDelay(const Group& group) {
    Nanoseconds ready = 0;
    Nanoseconds start = 0;
    for (const int member : group) {
      start = std::max(start, step_.events[At(member)].start);
      for (const int waited : waits_[At(member)]) {
        ready = std::max(ready, step_.events[At(waited)].end());
      }
    }
    const JobEvent& first = step_.events[At(group.front())];
    for (const int member : group) {
      result_.observed_delays[At(member)] = start - ready;
      result_.delay_keys[At(member)] = {first.pp_rank, first.name, first.sequence == 0};
    }
  }

  // Sorts the nodes topologically, with Kahn's algorithm.
  Result<void> Sort() {
    StepGraph& graph = result_.graph;
    const int nodes = static_cast<int>(waits_.size());
    std::vector<int> waiting_for(At(nodes));
    std::vector<std::vector<int>> awaited_by(At(nodes));
    for (int i = 0; i < nodes; ++i) {
      waiting_for[At(i)] = static_cast<int>(graph.waits_of(i).size());
      for (const int waited : graph.waits_of(i)) awaited_by[At(waited)].push_back(i);
      if (waiting_for[At(i)] == 0) graph.order.push_back(i);
    }
    for (std::size_t next = 0; next < graph.order.size(); ++next) {
      for (const int node : awaited_by[At(graph.order[next])]) {
        if (--waiting_for[At(node)] == 0) graph.order.push_back(node);
      }
    }
    if (graph.nodes() == nodes) return {};
    // Each remaining node waits for another remaining node. Following these waits ends in a cycle.
    int at = static_cast<int>(std::ranges::find_if(waiting_for, [](int n) { return n > 0; }) -
                              waiting_for.begin());
    const auto next = [&](int node) {
      const auto waits = graph.waits_of(node);
      return *std::ranges::find_if(waits, [&](int other) { return waiting_for[At(other)] > 0; });
    };
    const auto next_event = [&](int node) {
      do node = next(node);
      while (graph.is_meeting(node));
      return node;
    };
    for (int i = 0; i < nodes; ++i) at = next_event(at);
    return Fail("{}: it and event {} wait for each other (is the order of events recorded?)",
                Describe(step_.events[At(at)], step_.number),
                step_.events[At(next_event(at))].index);
  }

  const JobTrace& trace_;
  const RecordedStep& step_;
  const Nanoseconds clock_tolerance_;
  std::vector<std::vector<int>> waits_;
  Unfinished result_;
};

// The median of `sorted` without the element at `left_out`. If two elements are in the middle, the
// lower one.
Nanoseconds MedianWithout(const std::vector<Nanoseconds>& sorted, std::size_t left_out) {
  const std::size_t middle = (sorted.size() - 2) / 2;
  return sorted[middle < left_out ? middle : middle + 1];
}

void SetHostDelays(std::vector<Unfinished>& steps) {
  // For each key, the least delay of each step, with the step.
  std::map<DelayKey, std::vector<std::pair<Nanoseconds, std::size_t>>> observed;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    std::map<DelayKey, Nanoseconds> least;
    for (std::size_t i = 0; i < steps[s].delay_keys.size(); ++i) {
      const Nanoseconds delay = steps[s].observed_delays[i];
      const auto [found, is_new] = least.try_emplace(steps[s].delay_keys[i], delay);
      if (!is_new) found->second = std::min(found->second, delay);
    }
    for (const auto& [key, delay] : least) observed[key].emplace_back(delay, s);
  }
  std::map<std::pair<DelayKey, std::size_t>, Nanoseconds> typical;
  for (auto& [key, delays] : observed) {
    if (delays.size() < 2) continue;
    std::sort(delays.begin(), delays.end());
    std::vector<Nanoseconds> sorted;
    for (const auto& [delay, step] : delays) sorted.push_back(delay);
    for (std::size_t i = 0; i < delays.size(); ++i) {
      typical[{key, delays[i].second}] = MedianWithout(sorted, i);
    }
  }
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (const DelayKey& key : steps[s].delay_keys) {
      const auto found = typical.find({key, s});
      steps[s].graph.host_delays.push_back(
          found == typical.end() ? 0 : std::max<Nanoseconds>(0, found->second));
    }
  }
}

// The planner requires that the sum of all durations and delays fits an eighth of the 64-bit range.
Result<void> CheckSums(const StepGraph& graph) {
  Nanoseconds left = std::numeric_limits<Nanoseconds>::max() / 8;
  for (std::size_t i = 0; i < graph.durations.size(); ++i) {
    left -= graph.durations[i] + graph.host_delays[i];
    if (left >= 0) continue;
    return Fail(
        "{}: up to this event, the events of the step last more than 36 years in total (is ts in "
        "us?)",
        Describe(graph.step->events[i], graph.step->number));
  }
  return {};
}

// The events of one rank. Take() adds them one after another, in order of their start.
class RankOrder {
 public:
  explicit RankOrder(const RecordedStep& step) : step_(step) {}

  // How many of the added events still run when `event` begins.
  int CountRunning(const JobEvent& event) {
    while (!running_.empty() && running_.top() <= event.start) running_.pop();
    return static_cast<int>(running_.size());
  }

  // The added events that come directly before `event`.
  std::vector<int> PredecessorsOf(const JobEvent& event) const {
    std::vector<int> candidates;
    // A candidate that begins at latest_start comes after every event that had ended by then.
    Nanoseconds latest_start = std::numeric_limits<Nanoseconds>::min();
    const auto consider = [&](int earlier) {
      if (!IsAfter(step_.events[At(earlier)], event)) return;
      candidates.push_back(earlier);
      latest_start = std::max(latest_start, step_.events[At(earlier)].start);
    };
    const bool follows_computation = IsComputation(event.kind) && last_computation_ >= 0;
    if (follows_computation) {
      consider(last_computation_);
      // An event without a duration may begin and end with the computation, and come after it.
      --latest_start;
    }
    for (auto end = by_end_.upper_bound({LatestEndBefore(event), kAnyEvent});
         end != by_end_.begin();) {
      const auto [ends_at, earlier] = *--end;
      if (ends_at <= latest_start) break;
      if (!(follows_computation && earlier == last_computation_)) consider(earlier);
    }
    std::sort(candidates.begin(), candidates.end(), std::greater());
    std::vector<int> last;
    for (const int earlier : candidates) {
      const bool is_implied = std::any_of(last.begin(), last.end(), [&](int other) {
        return IsAfter(step_.events[At(earlier)], step_.events[At(other)]);
      });
      if (!is_implied) last.push_back(earlier);
    }
    return last;
  }

  void Take(int index) {
    const JobEvent& event = step_.events[At(index)];
    by_end_.insert({event.end(), index});
    running_.push(event.end());
    if (IsComputation(event.kind)) last_computation_ = index;
  }

 private:
  static constexpr int kAnyEvent = std::numeric_limits<int>::max();

  // An event that ends later is no predecessor, unless both are computations.
  static Nanoseconds LatestEndBefore(const JobEvent& event) {
    // An event without a duration overlaps with nothing.
    return event.duration == 0 ? std::numeric_limits<Nanoseconds>::max()
                               : event.start + event.duration / 2;
  }

  const RecordedStep& step_;
  std::set<std::pair<Nanoseconds, int>> by_end_;
  std::priority_queue<Nanoseconds, std::vector<Nanoseconds>, std::greater<>> running_;  // Ends.
  int last_computation_ = -1;
};

}  // namespace

Result<TraceGraph> BuildTraceGraph(const JobTrace& trace, Nanoseconds clock_tolerance) {
  std::vector<Unfinished> steps;
  for (const RecordedStep& step : trace.steps) {
    auto built = StepBuilder(trace, step, clock_tolerance).Build();
    if (!built) return Fail(built, InFile(trace.name));
    steps.push_back(*std::move(built));
  }
  SetHostDelays(steps);
  for (const Unfinished& step : steps) {
    if (auto fits = CheckSums(step.graph); !fits) {
      return Fail(fits, InFile(trace.name));
    }
  }
  TraceGraph graph;
  for (Unfinished& step : steps) graph.steps.push_back(std::move(step.graph));
  return graph;
}

Replay ReplayStep(const StepGraph& graph, std::span<const Nanoseconds> durations,
                  HostDelays delays) {
  Replay replay;
  replay.ends.assign(At(graph.nodes()), 0);
  for (const int node : graph.order) {
    Nanoseconds& end = replay.ends[At(node)];
    for (const int waited : graph.waits_of(node)) end = std::max(end, replay.ends[At(waited)]);
    if (graph.is_meeting(node)) continue;
    if (delays == HostDelays::kTypical) end += graph.host_delays[At(node)];
    end += durations[At(node)];
    replay.time = std::max(replay.time, end);
  }
  return replay;
}

std::vector<Nanoseconds> ReplayPipelinesAlone(const StepGraph& graph,
                                              std::span<const Nanoseconds> durations) {
  const auto pipeline_of = [&](int event) { return graph.step->events[At(event)].dp_rank; };
  std::vector<Nanoseconds> times(At(graph.step->events.back().dp_rank + 1), 0);
  std::vector<Nanoseconds> ends(durations.size(), 0);
  for (const int event : graph.order) {
    if (graph.is_meeting(event)) continue;
    const int pipeline = pipeline_of(event);
    std::span<const int> waits = graph.waits_of(event);
    if (!waits.empty() && graph.is_meeting(waits.front())) {
      // The meeting waits for events of all pipelines. Here, only the events of this pipeline
      // count. Events are sorted by pipeline.
      const auto of_all = graph.waits_of(waits.front());
      waits = {std::ranges::lower_bound(of_all, pipeline, {}, pipeline_of),
               std::ranges::upper_bound(of_all, pipeline, {}, pipeline_of)};
    }
    Nanoseconds& end = ends[At(event)];
    for (const int waited : waits) end = std::max(end, ends[At(waited)]);
    end += graph.host_delays[At(event)] + durations[At(event)];
    times[At(pipeline)] = std::max(times[At(pipeline)], end);
  }
  return times;
}

bool IsAfter(const JobEvent& earlier, const JobEvent& later) {
  const Nanoseconds overlap = std::min(earlier.end(), later.end()) - later.start;
  if (overlap <= 0 || (IsComputation(earlier.kind) && IsComputation(later.kind))) return true;
  return overlap <= std::min(earlier.duration, later.duration) / 2;
}

Result<std::vector<std::vector<int>>> OrderWithinRanks(const RecordedStep& step) {
  std::vector<std::vector<int>> after;
  after.reserve(step.events.size());
  std::optional<RankOrder> order;
  for (std::size_t i = 0; i < step.events.size(); ++i) {
    const JobEvent& event = step.events[i];
    if (i == 0 || event.dp_rank != step.events[i - 1].dp_rank ||
        event.pp_rank != step.events[i - 1].pp_rank) {
      order.emplace(step);
    }
    const int running = order->CountRunning(event);
    if (running >= kMostConcurrentEvents) {
      return Fail(
          "{}: it begins while {} other events of its rank run (expected fewer than {}: are ts and "
          "dur in us?)",
          Describe(event, step.number), running, kMostConcurrentEvents);
    }
    after.push_back(order->PredecessorsOf(event));
    order->Take(static_cast<int>(i));
  }
  return after;
}

}  // namespace perseus::replay
