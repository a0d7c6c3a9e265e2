// The scenarios. Each prints its results, with the load average of the machine.
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
  int width = 8;   // Jobs at a time.
  int step_s = 1;  // After each step, a node reports.
};

// The time from the report of a straggler until the last of many nodes has its new plan.
void MeasureStreams(const ServerProcess& server, const Options& options);
// Uploads of profiles with a thousand rows.
void MeasureUploads(const ServerProcess& server, const Options& options);
// The time from the profiles of many jobs to their assignments.
void MeasurePlans(const ServerProcess& server, const Options& options);
// The reports of nodes, one from each node every second.
void MeasureReports(const ServerProcess& server, const Options& options);
// Jobs that begin and end: does memory or the database grow?
void Soak(const ServerProcess& server, const Options& options);

}  // namespace perseus::load
