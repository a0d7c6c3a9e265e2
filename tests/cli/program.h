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
  // The same, but the program must succeed. Returns its output.
  std::string RunWell(const std::string& arguments) const;
  nlohmann::json RunJson(const std::string& arguments) const;

  // The directory in which the program runs.
  std::filesystem::path Directory() const { return root_ / "here"; }
  void Write(const std::string& name, const std::string& text) const;
  std::string Read(const std::string& name) const;
  // Returns all files below a folder, relative to it and sorted. Empty if the folder does not
  // exist.
  std::vector<std::string> Files(const std::string& folder) const;
  // The same without the report page, because a build without npm does not have it.
  std::vector<std::string> Results(const std::string& folder) const;

  // Waits for at most a minute. Returns whether the condition came true.
  static bool Comes(const std::function<bool()>& condition);
  // A process that a shell started in the background. The test cannot wait for it, and it may
  // remain a zombie.
  static bool HasEnded(pid_t process);

  // Makes profile.csv with four stages. kJob has the flags of a small job with it.
  void MakeProfile() const;
  static constexpr const char* kJob =
      " --schedule 1f1b --pp-ranks 4 --microbatches 8 --blocking-power 83.64 ";
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
  TemporaryDirectory root_;  // Contains that directory and the output of the program.
};

// Runs the command line in the process of the test.
class CommandTest : public ProgramTest {
 protected:
  // Calls RunProgram, which takes no time to start a process. Arguments with a redirection, a pipe
  // or another part of the language of the shell need the process that RunProcess starts.
  Outcome Run(const std::string& arguments) const override;
  Outcome RunProcess(const std::string& arguments) const { return ProgramTest::Run(arguments); }
};

// Expects this exit status, one line on standard error that contains `about`, and no output.
void ExpectComplaint(const Outcome& outcome, int status, const std::string& about);

}  // namespace perseus
