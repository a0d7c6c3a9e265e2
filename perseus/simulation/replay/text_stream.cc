#include "perseus/simulation/replay/text_stream.h"

#include <zlib.h>

#include <algorithm>

namespace perseus::replay {
namespace {

constexpr std::size_t kMostBytesOfPiece = std::size_t{1} << 18;

constexpr std::string_view kGzip = "\x1f\x8b";

// What the bytes are instead of UTF-8 text, or an empty text.
std::string_view OtherFormat(std::string_view bytes) {
  using namespace std::string_view_literals;
  constexpr struct {
    std::string_view begin, format;
  } kFormats[] = {
      {kGzip, "gzip"},        {"\x28\xb5\x2f\xfd", "zstd"}, {"PK\x03\x04", "zip"},
      {"BZh", "bzip2"},       {"\xfd\x37zXZ", "xz"},        {"\x04\x22\x4d\x18", "lz4"},
      {"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},       {"\0\0\xfe\xff"sv, "UTF-32"}};
  for (const auto& [begin, format] : kFormats) {
    if (bytes.starts_with(begin)) return format;
  }
  return bytes.substr(0, 4).find('\0') == std::string_view::npos ? "" : "binary data";
}

}  // namespace

// Owns the state of zlib.
class TextStream::Inflater {
 public:
  Inflater() : is_ready_(inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK) {}
  ~Inflater() {
    if (is_ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool is_ready() const { return is_ready_; }
  z_stream& stream() { return stream_; }
  int status = Z_OK;  // Of the last call of inflate().

 private:
  static constexpr int kGzipOnly = 16;
  z_stream stream_{};
  bool is_ready_;
};

TextStream::TextStream(std::string_view bytes, std::size_t most_bytes)
    : rest_(bytes), most_bytes_(most_bytes) {
  if (!bytes.starts_with(kGzip)) return;
  inflater_ = std::make_unique<Inflater>();
  buffer_.resize(kMostBytesOfPiece);
  if (!inflater_->is_ready()) {
    status_ = FailAs(ErrorKind::kSystem, "zlib cannot start (out of memory?)");
  }
}

TextStream::~TextStream() = default;

TextStream::int_type TextStream::underflow() {
  if (status_) status_ = TakePiece();
  return status_ && gptr() != egptr() ? traits_type::to_int_type(*gptr()) : traits_type::eof();
}

void TextStream::Show(char* piece, std::size_t size) { setg(piece, piece, piece + size); }

// Replaces the current piece, which has been read, by the next one. The next one is empty at the
// end of the text.
Result<void> TextStream::TakePiece() {
  before_ = position();
  Show(buffer_.data(), 0);
  if (before_ - value_begin_ > kMostBytesOfValue) {
    return Fail("the value or gap after byte {} of the text is longer than {} MiB (is it a trace?)",
                value_begin_, kMostBytesOfValue >> 20);
  }
  if (inflater_ != nullptr) {
    PERSEUS_ASSIGN_OR_RETURN(const std::size_t size, Inflate());
    Show(buffer_.data(), size);
  } else {
    const std::size_t size = std::min(rest_.size(), kMostBytesOfPiece);
    // std::streambuf wants a pointer to non-const, but only writes through it in pbackfail().
    Show(const_cast<char*>(rest_.data()), size);
    rest_.remove_prefix(size);
  }
  const std::string_view piece(gptr(), egptr());
  if (before_ == 0) PERSEUS_RETURN_IF_ERROR(CheckBegin(piece));
  if (before_ + piece.size() > most_bytes_) {
    return Fail("the trace has more than {} bytes of text (record fewer steps)", most_bytes_);
  }
  return {};
}

Result<void> TextStream::CheckBegin(std::string_view piece) const {
  if (piece.empty()) return Fail("the file has no text (record at least one step)");
  const std::string_view format = OtherFormat(piece);
  if (format.empty()) return {};
  return Fail("the {} is {} (expected text in UTF-8, or such text in gzip)",
              inflater_ == nullptr ? "file" : "content of the gzip data", format);
}

// Fills the buffer with the next bytes of text, and returns how many. 0 is the end of the text.
Result<std::size_t> TextStream::Inflate() {
  z_stream& stream = inflater_->stream();
  stream.next_out = reinterpret_cast<Bytef*>(buffer_.data());
  stream.avail_out = static_cast<uInt>(buffer_.size());
  while (stream.avail_out == buffer_.size()) {
    if (stream.avail_in == 0) {
      const std::size_t part = std::min(rest_.size(), kMostBytesOfPiece);
      // The type of next_in is not const, but zlib only reads from it.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
      stream.avail_in = static_cast<uInt>(part);
      rest_.remove_prefix(part);
    }
    // Before the end of a member, inflate() may still hold text although it has no input.
    const bool has_input = stream.avail_in > 0;
    if (inflater_->status == Z_STREAM_END) {
      if (!has_input) return 0;
      inflateReset(&stream);  // Another member follows.
    }
    inflater_->status = inflate(&stream, Z_NO_FLUSH);
    if (inflater_->status == Z_BUF_ERROR && !has_input) {
      return Fail("the gzip data ends early, after {} bytes of text (copy the whole file again)",
                  before_);
    }
    if (inflater_->status != Z_OK && inflater_->status != Z_STREAM_END &&
        inflater_->status != Z_BUF_ERROR) {
      return Fail("the gzip data is damaged after {} bytes of text: {} (copy the file again)",
                  before_, stream.msg == nullptr ? "not gzip" : stream.msg);
    }
  }
  return buffer_.size() - stream.avail_out;
}

}  // namespace perseus::replay
