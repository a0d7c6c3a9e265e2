#include "perseus/report/figure.h"

#include <duktape.h>

#include <memory>
#include <optional>
#include <vector>

#include "perseus/base/process.h"
#include "perseus/profile/excerpt.h"
#include "perseus/report/assets.h"

namespace perseus {
namespace {

struct KindName {
  std::string_view name;
  FigureKind kind;
};
constexpr KindName kKinds[] = {{"frontier", FigureKind::kFrontier},
                               {"timeline", FigureKind::kTimeline},
                               {"profile", FigureKind::kProfile}};
struct FormatName {
  std::string_view name;
  FigureFormat format;
};
constexpr FormatName kFormats[] = {
    {"svg", FigureFormat::kSvg}, {"png", FigureFormat::kPng}, {"pdf", FigureFormat::kPdf}};

std::string_view NameOf(FigureKind kind) {
  for (const auto& [name, of] : kKinds) {
    if (of == kind) return name;
  }
  return "";
}

// "frontier", or the end of "bloom-frontier".
bool IsNamed(std::string_view stem, std::string_view name) {
  if (!stem.ends_with(name)) return false;
  if (stem.size() == name.size()) return true;
  const char before = stem[stem.size() - name.size() - 1];
  return before == '-' || before == '_' || before == '.';
}

struct DestroyHeap {
  void operator()(duk_context* context) const { duk_destroy_heap(context); }
};

// Calls figure(name, data) in the script.
Result<std::string> RunScript(std::string_view name, const std::string& data) {
  const std::unique_ptr<duk_context, DestroyHeap> engine(duk_create_heap_default());
  if (!engine) return FailAs(ErrorKind::kSystem, "out of memory (draw a figure of a smaller job)");
  duk_context* const context = engine.get();
  const auto failure = [&] {
    return FailAs(ErrorKind::kSystem, "the figure cannot be drawn: {} (please report this)",
                  duk_safe_to_string(context, -1));
  };
  if (duk_peval_lstring(context, assets::kFigures.data(), assets::kFigures.size()) != 0) {
    return failure();
  }
  duk_get_global_string(context, "figure");
  duk_push_lstring(context, name.data(), name.size());
  duk_push_lstring(context, data.data(), data.size());
  if (duk_pcall(context, 2) != 0) return failure();
  duk_size_t size = 0;
  const char* const svg = duk_get_lstring(context, -1, &size);
  if (svg == nullptr) return failure();
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + std::string(svg, size) + "\n";
}

Result<std::string> Convert(const std::string& svg, std::string_view format) {
  std::vector<std::string> command = {"rsvg-convert", "--format", std::string(format)};
  if (format == "png") command.insert(command.end(), {"--zoom", "2"});
  auto converted = RunProgram(command, svg);
  if (!converted && converted.error().kind == ErrorKind::kUnreachable) {
    return FailAs(
        ErrorKind::kSystem,
        "a figure in {} needs rsvg-convert (apt-get install librsvg2-bin; or ask for .svg)",
        format);
  }
  return converted;
}

}  // namespace

Result<Figure> FigureOf(std::string_view file_name) {
  const std::string_view base = file_name.substr(file_name.rfind('/') + 1);
  const std::size_t dot = base.rfind('.');
  std::optional<FigureKind> kind;
  std::optional<FigureFormat> format;
  if (dot != base.npos) {
    for (const KindName& known : kKinds) {
      if (IsNamed(base.substr(0, dot), known.name)) kind = known.kind;
    }
    for (const FormatName& known : kFormats) {
      if (base.substr(dot + 1) == known.name) format = known.format;
    }
  }
  if (!kind || !format) {
    return Fail(
        "{} names no figure (call it frontier.svg, timeline.svg or profile.svg, or the same with "
        "something before: bloom-frontier.svg; .png and .pdf are fine, too)",
        Excerpt(file_name));
  }
  return Figure{*kind, *format};
}

Result<std::string> DrawFigure(const Figure& figure, const std::string& data) {
  if (assets::kFigures.empty()) {
    return FailAs(ErrorKind::kSystem,
                  "this build has no figures (install nodejs and npm, and build again)");
  }
  auto svg = RunScript(NameOf(figure.kind), data);
  if (!svg || figure.format == FigureFormat::kSvg) return svg;
  return Convert(*svg, figure.format == FigureFormat::kPng ? "png" : "pdf");
}

}  // namespace perseus
