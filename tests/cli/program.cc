#include "tests/cli/program.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

#include "perseus/base/file.h"
#include "perseus/cli/run_program.h"

namespace perseus {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns the characters that have a meaning for a shell between two of `quote`, or outside of
// quotes.
std::string_view LanguageOf(char quote) {
  if (quote == '\'') return "";
  return quote == '"' ? "$`\\" : "\n\t$`\\|&;<>()*?[#~";
}

// Splits the words as a shell does. Returns nullopt if a shell would do more than split them.
std::optional<std::vector<std::string>> SplitWords(std::string_view arguments) {
  std::vector<std::string> words{"perseus"};
  bool is_in_word = false;
  char quote = '\0';
  for (const char c : arguments) {
    if (quote != '\0' && c == quote) {
      quote = '\0';
    } else if (quote == '\0' && c == ' ') {
      is_in_word = false;
    } else if (LanguageOf(quote).find(c) != std::string_view::npos) {
      return std::nullopt;
    } else {
      if (!is_in_word) words.emplace_back();
      is_in_word = true;
      if (quote == '\0' && (c == '\'' || c == '"')) {
        quote = c;
      } else {
        words.back() += c;
      }
    }
  }
  return words;
}

// Restores the state of the process after a verb. Otherwise, a child of a later test would inherit
// ignored and blocked signals.
class KeepsProcess {
 public:
  explicit KeepsProcess(const std::filesystem::path& directory) {
    sigprocmask(SIG_SETMASK, nullptr, &mask_);
    std::filesystem::current_path(directory);
  }
  ~KeepsProcess() {
    std::filesystem::current_path(directory_);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
  }
  KeepsProcess(const KeepsProcess&) = delete;
  KeepsProcess& operator=(const KeepsProcess&) = delete;

 private:
  const std::filesystem::path directory_ = std::filesystem::current_path();
  sigset_t mask_{};
};

// A stream into memory.
class Memory {
 public:
  Memory() : stream_(open_memstream(&text_, &size_)) {}
  ~Memory() {
    std::fclose(stream_);
    std::free(text_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::FILE* stream() const { return stream_; }
  std::string Text() const {
    std::fflush(stream_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* const stream_;
};

}  // namespace

ProgramTest::ProgramTest() { std::filesystem::create_directory(root_ / "here"); }

Outcome ProgramTest::Run(const std::string& arguments) const {
  const std::string root = root_.path().string();
  // A redirection in the arguments applies only to the program, so it takes precedence.
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
  ASSERT_TRUE(written) << written.error().Message();
}

std::string ProgramTest::Read(const std::string& name) const {
  auto text = ReadFile(root_ / "here" / name);
  EXPECT_TRUE(text) << text.error().Message();
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

nlohmann::json ProgramTest::DataOf(const std::string& page) const {
  const std::string begin = "id=\"perseus-report\">";
  const std::string text = Read(page);
  const std::size_t from = text.find(begin) + begin.size();
  return nlohmann::json::parse(text.substr(from, text.find("</script>", from) - from));
}

bool ProgramTest::Comes(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

bool ProgramTest::HasEnded(pid_t process) {
  const auto stat = ReadFile("/proc/" + std::to_string(process) + "/stat");
  return !stat || stat->find(") Z ") != std::string::npos;
}

void ProgramTest::MakeProfile() const { RunWell("synth --stages 4 -o profile.csv"); }

Outcome CommandTest::Run(const std::string& arguments) const {
  const auto words = SplitWords(arguments);
  if (!words) return RunProcess(arguments);
  std::vector<const char*> argv;
  for (const std::string& word : *words) argv.push_back(word.c_str());
  const Memory out;
  const Memory err;
  const KeepsProcess keeps(Directory());
  const int status =
      cli::RunProgram({out.stream(), err.stream()}, static_cast<int>(argv.size()), argv.data());
  return {status, out.Text(), err.Text()};
}

std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

void ExpectNarrowOutput(const std::string& out, int tables) {
  int found = 0;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    // All bytes of a character but the first begin with the bits 10.
    const auto columns = std::ranges::count_if(
        line, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
    const bool is_one_word = line.find(' ') == line.npos;  // Such as a path.
    EXPECT_TRUE(columns <= 80 || is_one_word) << line;
    // The rule below the header of a table.
    if (!line.empty() && line.find_first_not_of("- ") == line.npos) ++found;
  }
  EXPECT_GE(found, tables) << out;
}

void ExpectComplaint(const Outcome& outcome, int status, const std::string& about) {
  EXPECT_EQ(outcome.status, status) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("perseus: "));
  EXPECT_THAT(outcome.err, HasSubstr(about));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

}  // namespace perseus
