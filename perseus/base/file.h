// Reads and writes whole files. A write replaces the whole file or changes nothing.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"

namespace perseus {

// The maximum number of bytes that ReadFile reads. Traces of long jobs are smaller (100 MB a file).
inline constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 30;

// Returns the bytes of a file, a terminal, or a pipe without a name (the pipe of `command |` or of
// `<(command)`). Fails (kFile) as CheckInputFile does, if the user may not read the file, and if
// the file has more than kMostFileBytes. Fails (kSystem) for other errors of the operating system,
// such as a disk error.
Result<std::string> ReadFile(const std::filesystem::path& path);

// Fails (kFile) with the cause and the remedy if `path` does not exist, or is a directory, a
// socket, a named pipe, or a device that is neither a terminal nor /dev/null.
Result<void> CheckInputFile(const std::filesystem::path& path);

// The default limit of ReadRegularFile. Plans of the largest jobs are smaller.
inline constexpr std::uint64_t kMostRegularBytes = std::uint64_t{256} << 20;

// Reads a file for a program that must never wait and never run out of memory, such as a training
// process. Fails (kFile) if `path` is a pipe, a socket or a device, or if the file has more than
// `most_bytes`. A pipe is open only during the call, and the call reads nothing from the pipe.
Result<std::string> ReadRegularFile(const std::filesystem::path& path,
                                    std::uint64_t most_bytes = kMostRegularBytes);

// Reads an open file up to its end. Fails as ReadRegularFile does. Errors name the file `path`.
Result<std::string> ReadToEnd(const FileDescriptor& file, std::uint64_t most_bytes,
                              const std::filesystem::path& path);

// Replaces the contents of `path` in one step: writes a temporary file in the same directory,
// flushes it to disk, renames it, and flushes the directory. Creates missing parent directories.
//
// 1. At any time, `path` holds either its old contents or all of the new ones.
// 2. After success, `path` holds the new contents, and a power cut does not undo this.
// 3. If only the flush of the directory fails, the call fails, but `path` already holds the new
//    contents. A power cut may then undo the write.
// 4. If `path` is a symbolic link, the call replaces the target of the link.
// 5. If `path` is a pipe or a device, the call writes to it directly. 1 to 3 do not hold then.
// 6. Only `readers` may read the file, whatever the umask is.
enum class Readers { kEverybody, kOwner };
Result<void> WriteFileAtomically(const std::filesystem::path& path, std::string_view contents,
                                 Readers readers = Readers::kEverybody);

// Writes the bytes into an open file. Returns how many bytes were written. If fewer than all were
// written, errno has the cause.
std::size_t WriteBytes(int file, std::string_view bytes);

// Removes the temporary files that killed writers of `path` left in its directory. Only the sole
// writer of `path` may call this, because it also removes the temporary file of a writer that is
// still busy. Ignores files that it cannot remove.
void RemoveUnfinished(const std::filesystem::path& path);

// Whether two results of stat(2) show the same file, with no write between the two calls. An empty
// result shows that the file does not exist.
bool IsUnchanged(const std::optional<struct stat>& before, const std::optional<struct stat>& now);

}  // namespace perseus
