#include "tests/cli/command.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "perseus/cli/run_program.h"

namespace perseus {
namespace {

// The characters with a meaning for a shell between two of `quote`, or outside of quotes.
std::string_view LanguageOf(char quote) {
  if (quote == '\'') return "";
  return quote == '"' ? "$`\\" : "\n\t$`\\|&;<>()*?[#~";
}

// The words as a shell splits them. Nothing if it would do more than split them.
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

// What a verb leaves of its process: a child of a later test would inherit ignored and blocked
// signals.
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

}  // namespace perseus
