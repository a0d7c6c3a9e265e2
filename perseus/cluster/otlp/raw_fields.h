// For tests: fields of a protobuf message by their numbers, without the definitions that the
// encoder uses.
#pragma once

#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <span>
#include <string>
#include <vector>

namespace perseus::otlp {

// A field of any type.
struct RawField {
  std::string bytes = {};    // Of a text, bytes, a message or a packed list.
  std::uint64_t number = 0;  // Of a whole number, a truth value or an enumeration.
  double real = 0;           // Of 8 bytes, as a real number.
  std::uint64_t fixed = 0;   // The same, as a whole number.
};

// All fields at the path: `path[0]` in the message, `path[1]` in each of these, and so on.
inline std::vector<RawField> FieldsAt(const std::string& message,
                                      std::span<const protozero::pbf_tag_type> path) {
  std::vector<RawField> found;
  for (protozero::pbf_reader reader(message); reader.next();) {
    if (reader.tag() != path.front()) {
      reader.skip();
      continue;
    }
    RawField field;
    if (reader.wire_type() == protozero::pbf_wire_type::length_delimited) {
      field.bytes = reader.get_bytes();
    } else if (reader.wire_type() == protozero::pbf_wire_type::fixed64) {
      protozero::pbf_reader same = reader;
      field.real = same.get_double();
      field.fixed = reader.get_fixed64();
    } else {
      field.number = reader.get_uint64();
    }
    if (path.size() == 1) {
      found.push_back(field);
    } else {
      for (RawField& inner : FieldsAt(field.bytes, path.subspan(1))) {
        found.push_back(std::move(inner));
      }
    }
  }
  return found;
}

inline std::vector<RawField> FieldsAt(const std::string& message,
                                      const std::vector<protozero::pbf_tag_type>& path) {
  return FieldsAt(message, std::span(path));
}

}  // namespace perseus::otlp
