// Manual pages, from the same descriptions as `perseus help`.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

#include "perseus/base/result.h"

namespace perseus::cli {

// Writes perseus.1, and perseus-VERB.1 for each verb, into the directory. Makes the directory if it
// does not exist. Fails (kSystem) if a file cannot be written.
Result<void> WriteManPages(const CLI::App& program, const std::filesystem::path& directory);

}  // namespace perseus::cli
