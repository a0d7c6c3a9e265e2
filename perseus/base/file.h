// Whole files in and out, so that a reader sees all of a file and a writer leaves all or nothing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus {

// The file's bytes. Fails (kSystem) with the operating system's reason, and with a remedy where one
// is known (a directory was given, for instance).
Result<std::string> ReadFile(const std::filesystem::path& path);

// Replaces `path` by `contents` in one step: writes a temporary file beside it, flushes it to disk,
// renames, flushes the directory. Whatever happens, `path` holds either its old contents or all of
// the new ones; once this has succeeded, the new ones, and a power cut does not undo that. (Where
// flushing the directory is what failed, the new contents are there, and a power cut may undo it.)
// Creates missing parent directories. Where `path` is a symbolic link, the file that it leads to is
// replaced; where it is a pipe or a device, that is written to, and nothing can be taken back.
Result<void> WriteFileAtomically(const std::filesystem::path& path, std::string_view contents);

// Removes the temporary files beside `path` that writers left who were killed meanwhile. Only for
// whoever is the only writer of `path`: another's, which is not finished yet, would go, too. What
// cannot be removed stays.
void RemoveUnfinished(const std::filesystem::path& path);

}  // namespace perseus
