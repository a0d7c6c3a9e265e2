// Runs the built `perseus` in a fresh directory.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace perseus {

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

class ProgramTest : public testing::Test {
 protected:
  ProgramTest();

  // As typed in the directory: "plan profile.csv --json". Words are split by the shell.
  Outcome Run(const std::string& arguments) const;
  // The same for what must go well; what it prints.
  std::string RunWell(const std::string& arguments) const;
  nlohmann::json RunJson(const std::string& arguments) const;

  // Where it runs.
  std::filesystem::path Directory() const { return root_ / "here"; }
  void Write(const std::string& name, const std::string& text) const;
  std::string Read(const std::string& name) const;
  // Every file below a folder, relative to it and sorted. None if it is not there.
  std::vector<std::string> Files(const std::string& folder) const;
  // The same but for the report page, which not every build has (it takes npm).
  std::vector<std::string> Results(const std::string& folder) const;

  // A profile of four stages, profile.csv, and the flags of a small job on it.
  void MakeProfile() const;
  static constexpr const char* kJob =
      " --schedule 1f1b --pp-ranks 4 --microbatches 8 --blocking-power 83.64 ";

 private:
  TemporaryDirectory root_;  // Holds the directory, and what the program prints.
};

// Status and one line on standard error, nothing on standard output.
void ExpectComplaint(const Outcome& outcome, int status, const std::string& about);

}  // namespace perseus
