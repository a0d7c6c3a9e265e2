#include "perseus/planning/report/figure.h"

#include <duktape.h>

#include <memory>

#include "perseus/base/excerpt.h"
#include "perseus/planning/report/assets.h"

namespace perseus::report {
namespace {

struct KindName {
  std::string_view name;
  FigureKind kind;
};
constexpr KindName kKinds[] = {
    {"frontier", FigureKind::kFrontier},  {"timeline", FigureKind::kTimeline},
    {"profile", FigureKind::kProfile},    {"switches", FigureKind::kSwitches},
    {"memory", FigureKind::kMemory},      {"orders", FigureKind::kOrders},
    {"schedules", FigureKind::kSchedules}};
std::string_view NameOf(FigureKind kind) {
  for (const auto& [name, of] : kKinds) {
    if (of == kind) return name;
  }
  return "";
}

// Whether `stem` is `name` or ends with it, such as "frontier" or "bloom-frontier".
bool IsNamed(std::string_view stem, std::string_view name) {
  if (!stem.ends_with(name)) return false;
  if (stem.size() == name.size()) return true;
  const char before = stem[stem.size() - name.size() - 1];
  return before == '-' || before == '_' || before == '.';
}

struct DestroyHeap {
  void operator()(duk_context* context) const { duk_destroy_heap(context); }
};

struct Call {
  std::string_view name;
  const std::string& data;
  double width_mm;
};

// Calls figure(name, data, width) of the script, and leaves its result on the stack. After an
// error, such as a lack of memory, Duktape leaves this function by longjmp. So no object here may
// have a destructor.
duk_ret_t CallFigure(duk_context* context, void* argument) {
  const auto* const call = static_cast<const Call*>(argument);
  duk_eval_lstring(context, assets::kFigures.data(), assets::kFigures.size());
  duk_get_global_string(context, "figure");
  duk_push_lstring(context, call->name.data(), call->name.size());
  duk_push_lstring(context, call->data.data(), call->data.size());
  duk_push_number(context, call->width_mm);
  duk_call(context, 3);
  duk_require_string(context, -1);
  return 1;
}

// Replaces the characters that XML forbids even in escaped form: control characters that are not
// white space, and the code points U+FFFE and U+FFFF.
std::string AsXml(std::string_view svg) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  for (std::size_t i = 0; i < svg.size(); ++i) {
    const char c = svg[i];
    const std::string_view three = svg.substr(i, 3);
    if (three == "\xef\xbf\xbe" || three == "\xef\xbf\xbf") {
      text += kReplacement;
      i += 2;
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r') {
      text += kReplacement;
    } else {
      text += c;
    }
  }
  return text + "\n";
}

Result<std::string> RunScript(std::string_view name, const std::string& data, double width_mm) {
  const std::unique_ptr<duk_context, DestroyHeap> engine(duk_create_heap_default());
  if (!engine) return FailAs(ErrorKind::kSystem, "out of memory (draw a figure of a smaller job)");
  Call call{name, data, width_mm};
  duk_context* const context = engine.get();
  if (duk_safe_call(context, CallFigure, &call, 0, 1) != DUK_EXEC_SUCCESS) {
    const std::string_view reason = duk_safe_to_string(context, -1);
    const bool is_memory = reason.find("alloc") != reason.npos;
    return FailAs(ErrorKind::kSystem, "the figure cannot be drawn: {} ({})", reason,
                  is_memory ? "use a machine with more memory" : "please report this");
  }
  duk_size_t size = 0;
  const char* const svg = duk_get_lstring(context, -1, &size);
  return AsXml({svg, size});
}

}  // namespace

std::optional<FigureKind> FigureNamed(std::string_view name) {
  for (const KindName& known : kKinds) {
    if (known.name == name) return known.kind;
  }
  return std::nullopt;
}

Result<FigureKind> FigureOf(std::string_view file_name) {
  constexpr std::string_view kEnding = ".svg";
  const std::string_view base = file_name.substr(file_name.rfind('/') + 1);
  if (base.ends_with(kEnding)) {
    for (const KindName& known : kKinds) {
      if (IsNamed(base.substr(0, base.size() - kEnding.size()), known.name)) return known.kind;
    }
  }
  return Fail(
      "{} is not the name of a figure (use frontier.svg, timeline.svg or profile.svg; with limits "
      "of clock changes switches.svg; with several schedules schedules.svg or orders.svg; with a "
      "search for schedules memory.svg; for any other name, frontier=FILE.svg and so on)",
      Excerpt(file_name));
}

Result<void> CheckDrawable() {
  if (!assets::kFigures.empty()) return {};
  return FailAs(ErrorKind::kSystem,
                "this build has no figures (install nodejs and npm, and build again)");
}

Result<std::string> DrawFigure(FigureKind kind, const std::string& data, double width_mm) {
  PERSEUS_RETURN_IF_ERROR(CheckDrawable());
  return RunScript(NameOf(kind), data, width_mm);
}

}  // namespace perseus::report
