#include "perseus/cluster/otlp/exporter.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/cluster/otlp/encoding.h"

namespace perseus::otlp {
namespace {

// As the SDKs of OpenTelemetry: about 300 kB.
constexpr std::size_t kSpansOfRequest = 512;

}  // namespace

Exporter::Exporter(Settings settings, ReadMetrics read_metrics, spdlog::logger& log,
                   std::chrono::milliseconds at_end)
    : settings_(std::move(settings)),
      read_metrics_(std::move(read_metrics)),
      log_(log),
      at_end_(at_end),
      begin_ns_(SinceEpoch()),
      next_spans_(Clock::now() + settings_.spans_interval),
      next_metrics_(Clock::now() + settings_.metrics_interval),
      ends_by_(std::numeric_limits<Clock::time_point::rep>::max()) {}

Result<std::unique_ptr<Exporter>> Exporter::Start(Settings settings, ReadMetrics read_metrics,
                                                  spdlog::logger& log,
                                                  std::chrono::milliseconds at_end) {
  std::unique_ptr<Exporter> exporter(
      new Exporter(std::move(settings), std::move(read_metrics), log, at_end));
  PERSEUS_RETURN_IF_ERROR(exporter->Connect(log));
  exporter->thread_ = std::thread([raw = exporter.get()] { raw->Run(); });
  return exporter;
}

Result<void> Exporter::Connect(spdlog::logger& log) {
  const auto should_end = [this] { return Clock::now().time_since_epoch().count() >= ends_by_; };
  if (settings_.traces) {
    PERSEUS_ASSIGN_OR_RETURN(
        auto delivery, Delivery::Create("traces", *settings_.traces, settings_, should_end, log));
    spans_.emplace(std::move(delivery));
  }
  if (settings_.metrics) {
    PERSEUS_ASSIGN_OR_RETURN(
        auto delivery, Delivery::Create("metrics", *settings_.metrics, settings_, should_end, log));
    metrics_.emplace(std::move(delivery));
  }
  return {};
}

Exporter::~Exporter() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ends_by_ = (Clock::now() + at_end_).time_since_epoch().count();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Exporter::Add(Span span) {
  bool is_batch = false;
  {
    const std::lock_guard lock(mutex_);
    if (!settings_.traces) return;
    if (queue_.size() >= settings_.most_spans) {
      ++dropped_;
      return;
    }
    queue_.push_back(std::move(span));
    is_batch = queue_.size() == kSpansOfRequest;
  }
  if (is_batch) changed_.notify_all();
}

Exporter::Counts Exporter::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = published_;
  counts.queue_full = dropped_;
  counts.waiting = static_cast<std::int64_t>(queue_.size());
  return counts;
}

bool Exporter::HasSpans(std::size_t least) const {
  const std::lock_guard lock(mutex_);
  return queue_.size() >= least;
}

void Exporter::PutSpans(Clock::time_point now) {
  std::vector<Span> spans;
  {
    const std::lock_guard lock(mutex_);
    const auto count = static_cast<std::ptrdiff_t>(std::min(queue_.size(), kSpansOfRequest));
    std::move(queue_.begin(), queue_.begin() + count, std::back_inserter(spans));
    queue_.erase(queue_.begin(), queue_.begin() + count);
  }
  next_spans_ = now + settings_.spans_interval;
  if (spans.empty()) return;
  spans_->Put({.body = EncodeSpans(spans, settings_.resource),
               .items = static_cast<std::int64_t>(spans.size())},
              now);
}

void Exporter::PutMetrics(Clock::time_point now) {
  next_metrics_ = now + settings_.metrics_interval;
  const auto families = read_metrics_(counts());
  metrics_->Put({.body = EncodeMetrics(families, settings_.resource, begin_ns_, SinceEpoch()),
                 .items = static_cast<std::int64_t>(families.size())},
                now);
}

void Exporter::Publish() {
  const std::lock_guard lock(mutex_);
  if (spans_) published_.spans = spans_->counts();
  if (metrics_) published_.metrics_failures = metrics_->counts().failures;
}

void Exporter::Attempt(std::optional<Delivery>& delivery) {
  if (!delivery || !delivery->IsPending() || Clock::now() < delivery->next()) return;
  delivery->Attempt(Clock::now());
  Publish();
}

Exporter::Clock::time_point Exporter::NextTime() const {
  auto next = Clock::time_point::max();
  if (spans_) next = std::min(next, spans_->IsPending() ? spans_->next() : next_spans_);
  if (metrics_) next = std::min(next, next_metrics_);
  if (metrics_ && metrics_->IsPending()) next = std::min(next, metrics_->next());
  return next;
}

// Returns false once the exporter ends.
bool Exporter::WaitUntil(Clock::time_point until) {
  const bool takes_spans = spans_ && !spans_->IsPending();
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until,
                      [&] { return ends_ || (takes_spans && queue_.size() >= kSpansOfRequest); });
  return !ends_;
}

void Exporter::Run() {
  try {
    while (WaitUntil(NextTime())) {
      const auto now = Clock::now();
      if (spans_ && !spans_->IsPending() && (now >= next_spans_ || HasSpans(kSpansOfRequest))) {
        PutSpans(now);
      }
      if (metrics_ && now >= next_metrics_) PutMetrics(now);
      Attempt(spans_);
      Attempt(metrics_);
    }
    Finish();
  } catch (const std::exception& exception) {
    // Out of memory. The server goes on without traces.
    log_.error("otlp: the export has ended: {} (restart the server)", exception.what());
  }
}

// Sends what waits, without the pauses, until the first failure of each signal.
void Exporter::Finish() {
  if (metrics_) {
    PutMetrics(Clock::now());
    metrics_->Attempt(Clock::now());
  }
  if (spans_) {
    for (std::int64_t failures = spans_->counts().failures; spans_->IsPending() || HasSpans(1);) {
      if (!spans_->IsPending()) PutSpans(Clock::now());
      spans_->Attempt(Clock::now());
      if (spans_->counts().failures != failures) break;
    }
    spans_->GiveUp();
  }
  Publish();
  const Counts all = counts();
  if (all.waiting + all.spans.expired > 0) {
    log_.warn("otlp: {} spans were not delivered", all.waiting + all.spans.expired);
  }
}

}  // namespace perseus::otlp
