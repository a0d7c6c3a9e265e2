#include "tests/cli/program.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>

#include "perseus/base/file.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

}  // namespace

ProgramTest::ProgramTest() { std::filesystem::create_directory(root_ / "here"); }

Outcome ProgramTest::Run(const std::string& arguments) const {
  const std::string root = root_.path().string();
  // A redirection in the arguments applies to the program alone, so it takes precedence.
  const std::string command = "cd '" + root + "/here' && { '" PERSEUS_PROGRAM "' " + arguments +
                              "; } >'" + root + "/out' 2>'" + root + "/err' </dev/null";
  const int status =
      std::system(command.c_str());  // NOLINT(bugprone-*): the command is from a test.
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, *ReadFile(root_ / "out"),
          *ReadFile(root_ / "err")};
}

std::string ProgramTest::RunWell(const std::string& arguments) const {
  const Outcome outcome = Run(arguments);
  EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

nlohmann::json ProgramTest::RunJson(const std::string& arguments) const {
  auto parsed = nlohmann::json::parse(RunWell(arguments + " --json"), nullptr, false);
  EXPECT_TRUE(parsed.is_object());
  return parsed;
}

void ProgramTest::Write(const std::string& name, const std::string& text) const {
  const auto written = WriteFileAtomically(root_ / "here" / name, text);
  ASSERT_TRUE(written) << written.error().message;
}

std::string ProgramTest::Read(const std::string& name) const {
  auto text = ReadFile(root_ / "here" / name);
  EXPECT_TRUE(text) << text.error().message;
  return text ? *std::move(text) : "";
}

std::vector<std::string> ProgramTest::Files(const std::string& folder) const {
  std::vector<std::string> names;
  const std::filesystem::path path = root_ / "here" / folder;
  if (!std::filesystem::exists(path)) return names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(path).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> ProgramTest::Results(const std::string& folder) const {
  std::vector<std::string> files = Files(folder);
  std::erase(files, "report.html");
  return files;
}

void ProgramTest::MakeProfile() const { RunWell("synth --stages 4 -o profile.csv"); }

void ExpectComplaint(const Outcome& outcome, int status, const std::string& about) {
  EXPECT_EQ(outcome.status, status) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("perseus: "));
  EXPECT_THAT(outcome.err, HasSubstr(about));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

}  // namespace perseus
