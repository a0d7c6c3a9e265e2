// The scenarios of the benchmark. Each scenario prints its results, with the load average of the
// machine.
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
  int width = 8;   // The number of jobs at a time.
  int step_s = 1;  // The time of a step. A node reports after each step.
};

// Measures the time from the report of a straggler until the last of many nodes has its new plan.
void MeasureStreams(const ServerProcess& server, const Options& options);
// Measures uploads of profiles with a thousand rows.
void MeasureUploads(const ServerProcess& server, const Options& options);
// Measures the time from the upload of the profiles of many jobs until these jobs have assignments.
void MeasurePlans(const ServerProcess& server, const Options& options);
// Measures the reports of nodes. Each node sends one report per second.
void MeasureReports(const ServerProcess& server, const Options& options);
// Begins and ends jobs, to show whether memory or the database grows.
void Soak(const ServerProcess& server, const Options& options);

}  // namespace perseus::load
