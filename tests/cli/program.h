// Runs the program `perseus` in a new directory.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
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

  // Runs the program with arguments such as "plan profile.csv --json". The shell splits the words.
  virtual Outcome Run(const std::string& arguments) const;
  // Does the same as Run(), but the program must succeed. Returns its output.
  std::string RunWell(const std::string& arguments) const;
  nlohmann::json RunJson(const std::string& arguments) const;

  // The directory in which the program runs.
  std::filesystem::path Directory() const { return root_ / "here"; }
  void Write(const std::string& name, const std::string& text) const;
  std::string Read(const std::string& name) const;
  // Returns all files below a folder, sorted, and relative to the folder. Empty if the folder does
  // not exist.
  std::vector<std::string> Files(const std::string& folder) const;
  // Returns the same files without the report page, because a build without npm does not have the
  // page.
  std::vector<std::string> Results(const std::string& folder) const;
  // Returns the data in a report page.
  nlohmann::json DataOf(const std::string& page) const;

  // Waits for at most a minute. Returns whether the condition became true.
  static bool Comes(const std::function<bool()>& condition);
  // Whether a process has ended that a shell started in the background. The test cannot wait for
  // this process, so the process may remain a zombie.
  static bool HasEnded(pid_t process);

  // Creates profile.csv with four stages. kJob has the flags of a small job with this profile.
  void MakeProfile() const;
  static constexpr const char* kJob =
      " --schedule 1f1b --pp-ranks 4 --microbatches 8 --blocking-power 83.64 ";
  // Clock changes that take no time, in place of the assumed ones.
  static inline const std::string kInstantChanges = "--switch-latency 0 --switch-cost 0 ";
  // Hardware facts with a rate of clock changes.
  static constexpr const char* kFactsOfA100 = R"(
format = "perseus-hardware-facts"
version = 1
host = "box"
gpu_name = "A100"
driver_version = "1"
measured_at = "2026-02-22T17:05:00Z"
perseus_version = "0.1.0"
gpu_count = 4
max_changes_per_s = {value = 20, low = 20, high = 40, samples = 35}
)";

 private:
  TemporaryDirectory root_;  // Contains the directory "here" and the output of the program.
};

// Runs the command line in the process of the test.
class CommandTest : public ProgramTest {
 protected:
  // Calls RunProgram, so no time is lost by starting a process. Arguments may contain a
  // redirection, a pipe or another part of the shell's language. Such arguments need the process
  // that RunProcess starts.
  Outcome Run(const std::string& arguments) const override;
  Outcome RunProcess(const std::string& arguments) const { return ProgramTest::Run(arguments); }
};

// Puts the text into one line, for sentences that may begin anywhere in a line.
std::string OneLine(std::string text);

// Expects at least so many tables, and that all lines fit 80 columns.
void ExpectNarrowOutput(const std::string& out, int tables);

// Expects this exit status, no output, and one line on standard error that contains `about`.
void ExpectComplaint(const Outcome& outcome, int status, const std::string& about);

}  // namespace perseus
