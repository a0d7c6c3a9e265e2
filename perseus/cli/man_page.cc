#include "perseus/cli/man_page.h"

#include <fmt/format.h>

#include <cctype>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/base/system_cause.h"
#include "perseus/base/utf8.h"
#include "perseus/cli/help.h"
#include "perseus/cli/version.h"

namespace perseus::cli {
namespace {

// Text as roff prints it. A dash becomes a plain minus, so that a flag can be copied. A line that
// begins with a dot or an apostrophe would be a request. troff reads only ASCII by itself.
std::string Roff(std::string_view text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const bool begins_line = escaped.empty() || escaped.back() == '\n';
    if (begins_line && (letter == '.' || letter == '\'')) escaped += "\\&";
    if (letter == '\\') {
      escaped += "\\e";
    } else if (letter == '-') {
      escaped += "\\-";
    } else if (const std::size_t length = Utf8CharacterLength(text.substr(i)); length > 1) {
      fmt::format_to(std::back_inserter(escaped), "\\[u{:04X}]",
                     static_cast<unsigned>(Utf8CodePoint(text.substr(i), length)));
      i += length - 1;
    } else {
      escaped += letter;
    }
  }
  return escaped;
}

std::string Upper(std::string text) {
  for (char& letter : text)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

class ManPage {
 public:
  ManPage(const std::string& name, std::string_view brief) {
    Add(".TH {} 1 \"{}\" \"perseus " PERSEUS_VERSION "\" \"Perseus\"\n", Upper(Roff(name)),
        CommitDate());
    Add(".SH NAME\n{} \\- {}\n", Roff(name), Roff(brief));
  }

  // `command` is what is typed, such as "perseus job register".
  void AddVerb(const CLI::App& verb, const std::string& command) {
    Section("SYNOPSIS");
    AddUsage(verb, command);
    Section("DESCRIPTION");
    Add("{}\n", Roff(verb.get_description()));
    AddFlags(verb, ".SH");
    for (const CLI::App* part : verb.get_subcommands({})) {
      const std::string part_command = command + " " + part->get_name();
      Section(Upper(part_command));
      AddUsage(*part, part_command);
      Add(".PP\n{}\n", Roff(part->get_description()));
      AddFlags(*part, ".SS");
      AddExamples(*part, ".SS");
    }
    AddExamples(verb, ".SH");
  }
  void AddLines(std::string_view section, std::string_view text) {
    Section(section);
    Add(".nf\n{}.fi\n", Roff(text));
  }
  void Section(std::string_view title) { Add(".SH {}\n", Roff(title)); }
  const std::string& text() const { return text_; }

 private:
  template <typename... Parts>
  void Add(fmt::format_string<Parts...> format, Parts&&... parts) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Parts>(parts)...);
  }

  void AddUsage(const CLI::App& verb, const std::string& command) {
    Add(".B {}\n", Roff(command));
    std::string rest = "[OPTIONS]";
    for (const CLI::Option* option : verb.get_options()) {
      if (!option->get_positional()) continue;
      const std::string type = HelpOf(*option).type;
      const std::string more = option->get_expected_max() > 1 ? "..." : "";
      rest += option->get_required() ? " " + type + more : " [" + type + more + "]";
    }
    if (!verb.get_subcommands({}).empty()) rest += " SUBCOMMAND";
    Add("{}\n", Roff(rest));
  }

  // `heading` is .SH for a section, .SS for a part of one.
  void AddFlags(const CLI::App& verb, std::string_view heading) {
    const auto add_group = [&](const std::string& title,
                               const std::vector<const CLI::Option*>& options) {
      if (options.empty()) return;
      Add("{} {}\n", heading, heading == ".SH" ? Upper(title) : title);
      for (const CLI::Option* option : options) AddFlag(*option);
    };
    add_group("Arguments", verb.get_options([](const CLI::Option* option) {
      return option->get_positional() && !option->get_group().empty();
    }));
    for (const std::string& group : verb.get_groups()) {
      if (group.empty()) continue;  // Hidden.
      add_group(group, verb.get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      }));
    }
  }

  void AddFlag(const CLI::Option& option) {
    const OptionHelp help = HelpOf(option);
    const bool is_argument = option.get_positional();
    std::string names;
    for (const std::string& name : option.get_snames()) names += ", -" + name;
    for (const std::string& name : option.get_lnames()) names += ", --" + name;
    Add(".TP\n");
    if (is_argument) {
      Add(".I {}\n", Roff(help.type));
    } else if (help.type.empty()) {
      Add(".B {}\n", Roff(names.substr(2)));
    } else {
      Add(".BI \"{} \" {}\n", Roff(names.substr(2)), Roff(help.type));
    }
    Add("{}\n", Roff(help.text));
  }

  void AddExamples(const CLI::App& verb, std::string_view heading) {
    const std::string footer = verb.get_footer();
    constexpr std::string_view kTitle = "Examples:\n";
    if (!footer.starts_with(kTitle)) return;
    Add("{} {}\n.nf\n{}\n.fi\n", heading, heading == ".SH" ? "EXAMPLES" : "Examples",
        Roff(std::string_view(footer).substr(kTitle.size())));
  }

  std::string text_;
};

}  // namespace

Result<void> WriteManPages(const CLI::App& program, const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return FailAs(ErrorKind::kSystem, "{}: cannot be made: {}", directory.string(),
                  CauseAndRemedy(error));
  }
  ManPage all("perseus", "plan and set GPU clocks that save energy in large model training");
  all.AddLines("SYNOPSIS", "perseus VERB [FLAGS]\n");
  all.AddLines("DESCRIPTION", FormatProgramHelp());
  std::string others;
  for (const ListedVerb& listed : ListedVerbs()) {
    const std::string name = fmt::format("perseus-{}", listed.name);
    ManPage page(name, listed.brief);
    page.AddVerb(*program.get_subcommand(std::string(listed.name)),
                 "perseus " + std::string(listed.name));
    page.AddLines("SEE ALSO", "perseus(1)\n");
    PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(directory / (name + ".1"), page.text()));
    others += name + "(1)\n";
  }
  all.AddLines("SEE ALSO", others);
  return WriteFileAtomically(directory / "perseus.1", all.text());
}

}  // namespace perseus::cli
