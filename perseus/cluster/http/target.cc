#include "perseus/cluster/http/target.h"

#include <algorithm>

#include "perseus/base/utf8.h"

namespace perseus::http {
namespace {

int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::optional<std::string> Unescaped(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    plain += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return plain;
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

std::optional<std::string> QueryText(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  return PercentDecoded(spaced);
}

Result<void> ParseQuery(std::string_view text, Target& target) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    const auto name = QueryText(pair.substr(0, equals));
    const auto value = QueryText(equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    if (!name || !value) {
      return Fail("has a query that cannot be decoded (escape bytes of UTF-8 as %XX)");
    }
    if (!target.query.insert_or_assign(*name, *value).second) target.repeated = *name;
  }
  return {};
}

// Reduces "http://host/path" to "/path" (RFC 9112, absolute form).
std::string_view WithoutHost(std::string_view target) {
  const std::size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return target;
  const std::size_t path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? "/" : target.substr(path);
}

}  // namespace

std::optional<std::string> PercentDecoded(std::string_view text) {
  auto plain = Unescaped(text);
  if (!plain || FindInvalidUtf8(*plain) != std::string_view::npos ||
      plain->find('\0') != std::string::npos)
    return std::nullopt;
  return plain;
}

Result<Target> ParseTarget(std::string_view target) {
  target = WithoutHost(target);
  if (!target.starts_with('/')) return Fail("is not a path (begin with /)");
  target = target.substr(0, target.find('#'));
  Target parsed;
  const std::size_t question = target.find('?');
  parsed.encoded_path = target.substr(0, question);
  auto path = PercentDecoded(parsed.encoded_path);
  if (!path || std::any_of(path->begin(), path->end(), IsControl)) {
    return Fail("has a path that cannot be decoded (escape bytes of UTF-8 as %XX)");
  }
  parsed.path = *std::move(path);
  if (question != std::string_view::npos) {
    PERSEUS_RETURN_IF_ERROR(ParseQuery(target.substr(question + 1), parsed));
  }
  return parsed;
}

std::optional<std::vector<std::string>> PathSegments(std::string_view encoded_path) {
  std::vector<std::string> segments;
  if (encoded_path.starts_with('/')) encoded_path.remove_prefix(1);
  while (true) {
    const std::size_t slash = encoded_path.find('/');
    auto segment = PercentDecoded(encoded_path.substr(0, slash));
    if (!segment) return std::nullopt;
    segments.push_back(*std::move(segment));
    if (slash == std::string_view::npos) return segments;
    encoded_path.remove_prefix(slash + 1);
  }
}

}  // namespace perseus::http
