#include "perseus/simulation/replay/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

namespace perseus::replay {
namespace {

// Owns the state of zlib.
class Inflater {
 public:
  Inflater() : is_ready_(inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK) {}
  ~Inflater() {
    if (is_ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool is_ready() const { return is_ready_; }
  z_stream& stream() { return stream_; }

 private:
  static constexpr int kGzipOnly = 16;
  z_stream stream_{};
  bool is_ready_;
};

}  // namespace

bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

Result<std::string> Gunzip(std::string_view bytes, std::size_t most_bytes) {
  Inflater inflater;
  if (!inflater.is_ready()) return FailAs(ErrorKind::kSystem, "zlib cannot start (out of memory?)");
  z_stream& stream = inflater.stream();
  std::string text;
  std::string_view rest = bytes;
  std::string buffer(std::size_t{1} << 18, '\0');
  int status = Z_OK;
  while (true) {
    if (stream.avail_in == 0) {
      const std::size_t part =
          std::min<std::size_t>(rest.size(), std::numeric_limits<uInt>::max() / 2);
      // The type of next_in is not const, but zlib only reads from it.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
      stream.avail_in = static_cast<uInt>(part);
      rest.remove_prefix(part);
    }
    if (status == Z_STREAM_END) {
      if (stream.avail_in == 0) return text;
      inflateReset(&stream);  // Another member follows.
    } else if (stream.avail_in == 0) {
      return Fail("the gzip data ends early, after {} bytes of text (copy the whole file again)",
                  text.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      return Fail("the gzip data is damaged after {} bytes of text: {} (copy the file again)",
                  text.size(), stream.msg == nullptr ? "not gzip" : stream.msg);
    }
    text.append(buffer, 0, buffer.size() - stream.avail_out);
    if (text.size() > most_bytes) {
      return Fail("more than {} bytes when decompressed (record fewer steps)", most_bytes);
    }
  }
}

}  // namespace perseus::replay
