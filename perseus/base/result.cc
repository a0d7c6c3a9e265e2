#include "perseus/base/result.h"

namespace perseus {
namespace {

// The first key in backticks, without its value. Empty if the text has no key.
std::string FirstSetting(std::string_view text) {
  const std::size_t begin = text.find('`');
  if (begin == std::string_view::npos) return "";
  text.remove_prefix(begin + 1);
  return std::string(text.substr(0, text.find_first_of("` ")));
}

}  // namespace

Place InFile(std::string_view name, int line) { return {.file = std::string(name), .line = line}; }

std::string Place::Text() const { return line == 0 ? file : fmt::format("{}:{}", file, line); }

std::string Error::setting() const {
  std::string setting = FirstSetting(what);
  return setting.empty() ? FirstSetting(remedy) : setting;
}

std::string Error::Cause() const {
  std::string text;
  for (const std::string& part : {context, where.Text()}) {
    if (!part.empty()) text += part + ": ";
  }
  return text + what;
}

std::string Error::Message() const {
  return remedy.empty() ? Cause() : fmt::format("{} ({})", Cause(), remedy);
}

Error Error::In(std::string_view task) const {
  Error error = *this;
  std::string& outer = where == Place{} ? error.what : error.context;
  outer = outer.empty() ? std::string(task) : fmt::format("{}: {}", task, outer);
  return error;
}

}  // namespace perseus
