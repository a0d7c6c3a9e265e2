// JSON to text and back. Only for JSON that this project wrote, and for JSON that other code
// checks. Files of users have readers with errors that name the place (json_file.h).
//
// Only this module compiles the serializer and the parser. Otherwise, each module that uses them
// would compile three seconds longer.
//
// Only .cc files of modules that link nlohmann_json may include this header.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace perseus {

// Writes one line, or indents each level by `indent` spaces. Bytes that are not UTF-8 become
// U+FFFD.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// If the text is not JSON, the result is_discarded().
nlohmann::json ParseJson(std::string_view text);
nlohmann::ordered_json ParseOrderedJson(std::string_view text);

}  // namespace perseus
