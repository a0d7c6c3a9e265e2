#include "perseus/base/json_text.h"

#include <nlohmann/json.hpp>

namespace perseus {

using nlohmann::json;
using nlohmann::ordered_json;

std::string JsonText(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string JsonText(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

json ParseJson(std::string_view text) { return json::parse(text, nullptr, false); }

ordered_json ParseOrderedJson(std::string_view text) {
  return ordered_json::parse(text, nullptr, false);
}

}  // namespace perseus
