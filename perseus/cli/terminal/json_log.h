// A log of JSON objects, one per line, for programs that read logs.
#pragma once

#include <spdlog/formatter.h>

#include <memory>

namespace perseus::cli {

// {"time", "level", "message"}. If the message consists of pairs (key=value key="a value"), as for
// requests, each pair is a member, too.
std::unique_ptr<spdlog::formatter> JsonLogFormatter();

}  // namespace perseus::cli
