#include "perseus/cli/terminal/json_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perseus::cli {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// The pairs of `key=value key="a value"`. Empty if the text is anything else.
Pairs PairsOf(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
  Pairs pairs;
  while (!text.empty()) {
    const std::size_t equals = text.find_first_not_of(kLetters);
    if (equals == 0 || equals == std::string_view::npos || text[equals] != '=') return {};
    const std::string_view key = text.substr(0, equals);
    text.remove_prefix(equals + 1);
    const bool is_quoted = text.starts_with('"');
    if (is_quoted) text.remove_prefix(1);
    const std::size_t end = text.find(is_quoted ? '"' : ' ');
    if (is_quoted && end == std::string_view::npos) return {};
    pairs.emplace_back(key, text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (is_quoted && text.starts_with(' ')) text.remove_prefix(1);
  }
  return pairs;
}

class JsonLines final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    const std::string_view level(spdlog::level::to_string_view(message.level).data(),
                                 spdlog::level::to_string_view(message.level).size());
    const auto milliseconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch());
    nlohmann::ordered_json json{
        {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                             fmt::gmtime(std::chrono::system_clock::to_time_t(message.time)),
                             milliseconds.count() % 1000)},
        {"level", level},
        {"message", text}};
    for (auto& [key, value] : PairsOf(text)) {
      if (!json.contains(key)) json[key] = std::move(value);
    }
    const std::string dumped =
        json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    line.append(dumped.data(), dumped.data() + dumped.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonLines>();
  }
};

}  // namespace

std::unique_ptr<spdlog::formatter> JsonLogFormatter() { return std::make_unique<JsonLines>(); }

}  // namespace perseus::cli
