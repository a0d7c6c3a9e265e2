#include "perseus/cluster/telemetry/notice_check.h"

#include <algorithm>

#include "perseus/base/statistics.h"

namespace perseus::telemetry {
namespace {

bool Holds(Milliseconds starts, Milliseconds expires, Milliseconds now) {
  return starts <= now && (expires == 0 || now < expires);
}

}  // namespace

double LeastMeasured(double slowdown) { return 1 + (slowdown - 1) / 2; }

void NoticeCheck::SetNotices(const std::vector<store::StragglerRecord>& stragglers) {
  std::map<Key, Checked> notices;
  for (const store::StragglerRecord& straggler : stragglers) {
    if (straggler.source == store::StragglerSource::kDetected || straggler.slowdown <= 1) continue;
    const Key key(straggler.dp_rank, straggler.source);
    Checked checked{.slowdown = straggler.slowdown,
                    .starts = straggler.starts,
                    .is_suspended = straggler.suspended != 0};
    const auto old = notices_.find(key);
    const bool is_same = old != notices_.end() && old->second.slowdown == checked.slowdown &&
                         old->second.starts == checked.starts &&
                         old->second.is_suspended == checked.is_suspended;
    if (is_same) checked = std::move(old->second);
    checked.expires = straggler.expires;
    notices.emplace(key, std::move(checked));
  }
  notices_ = std::move(notices);
}

double NoticeCheck::Reference(const std::map<int, double>& ratios, const std::set<int>& detected,
                              Milliseconds now) const {
  std::vector<double> healthy;
  for (const auto& [rank, ratio] : ratios) {
    const int dp_rank = rank;  // Clang does not capture a binding.
    const bool is_declared = std::ranges::any_of(notices_, [&](const auto& notice) {
      return notice.first.first == dp_rank &&
             Holds(notice.second.starts, notice.second.expires, now);
    });
    if (!is_declared && !detected.contains(dp_rank)) healthy.push_back(ratio);
  }
  return healthy.empty() ? 1 : LowerMedian(std::move(healthy));
}

std::vector<NoticeChange> NoticeCheck::Add(const std::map<int, double>& ratios,
                                           const std::set<int>& detected, Milliseconds now) {
  std::vector<NoticeChange> changes;
  if (notices_.empty()) return changes;
  const double reference = Reference(ratios, detected, now);
  for (auto& [key, notice] : notices_) {
    const auto ratio = ratios.find(key.first);
    if (ratio == ratios.end() || !Holds(notice.starts, notice.expires, now)) continue;
    const double measured = ratio->second / reference;
    const bool contradicts = measured < LeastMeasured(notice.slowdown);
    if (contradicts == notice.is_suspended) {
      notice.steps = 0;
      notice.measured.clear();
      continue;
    }
    notice.measured.push_back(measured);
    if (++notice.steps < (notice.is_suspended ? notice.to_reinstate : kToSuspend)) continue;
    // The number doubles at each reinstatement, so the first suspension uses the original number.
    if (notice.is_suspended) {
      notice.to_reinstate = std::min(2 * notice.to_reinstate, kMaxToReinstate);
    }
    notice.is_suspended = !notice.is_suspended;
    changes.push_back({key.first, key.second, notice.slowdown, notice.is_suspended,
                       LowerMedian(std::move(notice.measured))});
    notice.measured.clear();
    notice.steps = 0;
  }
  return changes;
}

}  // namespace perseus::telemetry
