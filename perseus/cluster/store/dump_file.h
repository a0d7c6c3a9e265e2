// The lines of a backup (dump.h), with the hash of all lines before.
#pragma once

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "perseus/base/result.h"

namespace perseus::store {

// SHA-256 of a text that comes in parts.
class RunningHash {
 public:
  RunningHash();
  ~RunningHash();
  RunningHash(const RunningHash&) = delete;
  RunningHash& operator=(const RunningHash&) = delete;
  void Add(std::string_view text);
  std::string Hexadecimal() const;  // Of everything so far.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writes PATH.part, which Finish() renames to PATH. Otherwise the destructor deletes it.
class DumpWriter {
 public:
  static Result<DumpWriter> Create(const std::string& path);
  DumpWriter(DumpWriter&&) = default;
  ~DumpWriter();

  Result<void> Write(std::string_view line);
  std::string hash() const { return hash_->Hexadecimal(); }
  Result<void> Finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  DumpWriter(std::FILE* file, std::string path);
  Result<void> Failed() const;

  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
  std::unique_ptr<RunningHash> hash_;
};

class DumpReader {
 public:
  static Result<DumpReader> Open(const std::string& path);
  // False at the end of the file. hash() is of the lines before the one that was read last.
  bool Next(std::string& line);
  std::string hash() const { return before_; }
  int line() const { return line_; }

 private:
  std::ifstream file_;
  std::unique_ptr<RunningHash> hash_ = std::make_unique<RunningHash>();
  std::string before_;
  int line_ = 0;
};

}  // namespace perseus::store
