// A temporary directory for one test. The destructor removes it. Tests run side by side, so with a
// fixed name, two tests could use the same directory.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace perseus {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    // The name is short, because the path of a socket has at most 107 bytes.
    std::string name = (std::filesystem::temp_directory_path() / "perseus-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("cannot make a temporary directory");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // NOLINTNEXTLINE(google-explicit-constructor): it is used like its path.
  operator const std::filesystem::path&() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace perseus
