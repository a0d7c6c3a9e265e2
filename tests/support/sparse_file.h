// Makes files that are larger than any disk.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace perseus {

// Lengthens a file to 15 TB. If the file system has no files of this size, lengthens it to 1 TB.
// The new part is a hole: it takes no space, and reads as zeros.
inline void LengthenWithHole(const std::filesystem::path& path) {
  constexpr off_t kTerabyte = 1'000'000'000'000;
  if (::truncate(path.c_str(), 15 * kTerabyte) == 0) return;
  if (::truncate(path.c_str(), kTerabyte) != 0) throw std::runtime_error(std::strerror(errno));
}

}  // namespace perseus
