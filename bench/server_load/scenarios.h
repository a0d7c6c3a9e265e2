// What is measured; each prints its own numbers, with the machine's load average beside them.
#pragma once

#include <boost/asio/io_context.hpp>

#include "bench/server_load/server_process.h"

namespace perseus::load {

struct Options {
  int nodes = 5'000;
  int microbatches = 96;
  int rounds = 5;
  int jobs = 200;
  int uploads = 2'000;
  double seconds = 30;
  double minutes = 10;
  int width = 8;  // Jobs at a time.
};

// From a straggler's notice until the last of many nodes has its new plan.
void MeasureStreams(const ServerProcess& server, const Options& options);
// Profiles of a thousand rows.
void MeasureUploads(const ServerProcess& server, const Options& options);
// From many jobs' profiles to their assignment.
void MeasurePlans(const ServerProcess& server, const Options& options);
// What nodes report, each once a second.
void MeasureReports(const ServerProcess& server, const Options& options);
// Jobs that come and go: what grows?
void Soak(const ServerProcess& server, const Options& options);

}  // namespace perseus::load
