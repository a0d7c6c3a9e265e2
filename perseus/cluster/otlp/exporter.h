// Exports spans and metrics to a collector of OpenTelemetry, on a thread of its own.
//
//   auto exporter = Exporter::Start(settings, read_metrics, log);
//   exporter->Add(span);             returns at once, whatever the collector does
//
// Spans wait in a queue that is bounded: if it is full, new spans are dropped and counted. The end
// of the program waits for the collector for a few seconds at most (and for the resolver of the
// system, if it is looking up the collector's name).
//
// Why this is not opentelemetry-cpp: no distribution that Perseus is built on packages it, and its
// sources bring protobuf, gRPC or libcurl along. protozero (headers only) writes the messages, and
// the HTTP client is here.
//
// Thread safe.
#pragma once

#include <prometheus/metric_family.h>
#include <spdlog/logger.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/otlp/delivery.h"
#include "perseus/cluster/otlp/settings.h"
#include "perseus/cluster/otlp/span.h"

namespace perseus::otlp {

class Exporter {
 public:
  struct Counts {
    Delivery::Counts spans;
    std::int64_t queue_full = 0;        // Spans that were dropped before they were sent.
    std::int64_t waiting = 0;           // Spans in the queue.
    std::int64_t metrics_failures = 0;  // Requests that failed.
  };
  // Takes what the exporter itself counts.
  using ReadMetrics = std::function<std::vector<prometheus::MetricFamily>(const Counts& counts)>;

  // `read_metrics` is called on the thread of the exporter. Fails (kInput) if a certificate of the
  // settings cannot be read. `at_end`: the longest time for the last requests.
  static Result<std::unique_ptr<Exporter>> Start(
      Settings settings, ReadMetrics read_metrics, spdlog::logger& log,
      std::chrono::milliseconds at_end = std::chrono::milliseconds(3'000));
  ~Exporter();  // Sends what waits.
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Never blocks on the network.
  void Add(Span span);

  Counts counts() const;

 private:
  using Clock = Delivery::Clock;
  Exporter(Settings settings, ReadMetrics read_metrics, spdlog::logger& log,
           std::chrono::milliseconds at_end);
  Result<void> Connect(spdlog::logger& log);
  void Run();
  bool WaitUntil(Clock::time_point until);
  Clock::time_point NextTime() const;
  void PutSpans(Clock::time_point now);
  void PutMetrics(Clock::time_point now);
  void Attempt(std::optional<Delivery>& delivery);
  void Finish();
  bool HasSpans(std::size_t least) const;
  void Publish();

  const Settings settings_;
  const ReadMetrics read_metrics_;
  spdlog::logger& log_;
  const std::chrono::milliseconds at_end_;
  const std::int64_t begin_ns_;
  // Of the thread:
  std::optional<Delivery> spans_;
  std::optional<Delivery> metrics_;
  Clock::time_point next_spans_;
  Clock::time_point next_metrics_;

  std::atomic<Clock::time_point::rep> ends_by_;  // When requests are aborted.
  mutable std::mutex mutex_;                     // Guards the members below.
  std::condition_variable changed_;
  std::vector<Span> queue_;
  std::int64_t dropped_ = 0;
  Counts published_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace perseus::otlp
