#include "base/options/arguments.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iostream>
#include <sstream>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "base/text.hpp"

namespace mm {
namespace {

constexpr std::size_t kWide = 78;         // columns of help
constexpr std::size_t kOptionsWide = 28;  // maximum width of the column of options

/// Returns the number of columns that a text in UTF-8 occupies.
std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

/// Returns a list with a space after every comma.
std::string spaced(const std::string& list) {
  std::string all;
  for (const char c : list) all += c == ',' ? std::string(", ") : std::string(1, c);
  return all;
}

/// Wraps the words of a text into lines of `width` columns. Every line but the first begins with `indent`.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent) {
  std::istringstream words(text);
  std::string all, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && columns(line) + 1 + columns(word) > width) {
      all += line + "\n" + indent;
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return all + line;
}

/// Returns the paragraphs of a text, indented and wrapped. Empty lines separate paragraphs.
std::string paragraphs(const std::string& text) {
  std::istringstream lines(text);
  std::string all, paragraph;
  const auto end = [&] {
    if (!paragraph.empty()) all += "\n  " + wrapped(paragraph, kWide - 2, "  ") + "\n";
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) end();
    paragraph += (paragraph.empty() ? "" : " ") + line;
  }
  end();
  return all;
}

/// Formats the help like the help of the commands in Python.
class HelpFormat : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode /*mode*/) const override {
    std::string operands, operand_help;
    std::vector<std::pair<std::string, std::string>> rows, last_rows;
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_group().empty()) continue;  // hidden
      auto row = std::pair(label(*option), text(*option));
      if (option->nonpositional()) {
        (option == app->get_help_ptr() ? last_rows : rows).push_back(std::move(row));
        continue;
      }
      const std::string operand = option->get_name(true);
      operands += option->get_required() ? " " + operand : " [" + operand + "]";
      operand_help += entry(row, kOptionsWide);
    }
    rows.insert(rows.end(), last_rows.begin(), last_rows.end());
    std::size_t option_width = 0;
    for (const auto& [option, help] : rows)
      if (columns(option) <= kOptionsWide) option_width = std::max(option_width, columns(option));
    if (name.find("[OPTIONS]") == std::string::npos) name += " [OPTIONS]" + operands;  // else it is a whole usage line
    std::string all = "Usage: " + name + "\n" + paragraphs(app->get_description());
    if (!operand_help.empty()) all += "\nArguments:\n" + operand_help;
    all += "\nOptions:\n";
    for (const auto& row : rows) all += entry(row, option_width);
    std::istringstream footer(app->get_footer());  // a table, whose lines are not wrapped
    if (!app->get_footer().empty()) all += "\n";
    for (std::string line; std::getline(footer, line);) all += line + "\n";
    return all;
  }

 private:
  /// Returns the label of an option, such as `--slots <text>` or `-h, --help`.
  static std::string label(const CLI::Option& option) {
    std::string all = spaced(option.get_name(!option.nonpositional(), option.nonpositional()));
    std::string type = option.get_type_name();
    if (option.get_items_expected_max() == 0 || type.empty()) return all;
    type = type.substr(0, type.find(':'));
    if (type.starts_with('{')) type = "choice";  // the help lists the values
    std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
    return option.nonpositional() ? all + " <" + type + ">" : all;
  }

  /// Returns the help text of an option with the allowed values and the default.
  static std::string text(const CLI::Option& option) {
    std::string all = option.get_description();
    const std::string type = option.get_type_name();
    if (const auto range_at = type.find(" in ["); range_at != std::string::npos) {
      std::string range = type.substr(range_at + 5, type.find(']', range_at) - range_at - 5);
      if (const auto dash = range.find(" - "); dash != std::string::npos) range.replace(dash, 3, " to ");
      all += " (" + range + ")";
    } else if (const auto brace = type.find(":{"); brace != std::string::npos) {
      all += ": " + spaced(type.substr(brace + 2, type.find('}', brace) - brace - 2));
    }
    if (!option.get_default_str().empty()) all += " [default: " + option.get_default_str() + "]";
    return all;
  }

  /// Returns a row of two columns. An option that is wider than its column gets a separate line.
  static std::string entry(const std::pair<std::string, std::string>& row, std::size_t wide) {
    const auto& [option, help] = row;
    const std::string indent(wide + 4, ' ');
    const std::string gap = columns(option) <= wide ? std::string(wide + 2 - columns(option), ' ') : "\n" + indent;
    return "  " + option + gap + wrapped(help, kWide - wide - 4, indent) + "\n";
  }
};

}  // namespace

Arguments::Arguments(const std::string& about, const std::string& name)
    : app_(std::make_unique<CLI::App>(about, name)) {
  app_->formatter(std::make_shared<HelpFormat>());
  app_->set_help_flag("-h,--help", "Show this message and exit.");
}

Arguments::~Arguments() = default;

using Option = Arguments::Option;

namespace {

/// Formats a time as users write it: 500ms, 1000h.
std::string shown_time(double time_s) {
  constexpr std::pair<double, const char*> units[] = {{3600, "h"}, {1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  const auto* const unit = std::find_if(std::begin(units), std::prev(std::end(units)), [&](const auto& u) {
    return time_s >= u.first || (time_s == 0 && u.first == 1);
  });
  std::ostringstream text;
  text << time_s / unit->first << unit->second;
  return text.str();
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::may_be_bare() {
  option_->expected(0, 1);
  return *this;
}

Option& Option::from(int min, int max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option& Option::from(double min, double max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& known) {
  option_->check(CLI::IsMember(known));
  return *this;
}

Option& Option::of_file() {
  option_->check(CLI::ExistingFile);
  return *this;
}

Option& Option::of_folder() {
  option_->check(CLI::ExistingDirectory);
  return *this;
}

bool Option::given() const { return option_->count() > 0; }

Option Arguments::add(const std::string& name, std::string& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option Arguments::add(const std::string& name, std::optional<std::string>& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option Arguments::add(const std::string& name, int& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option Arguments::add(const std::string& name, double& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option Arguments::add(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  return Option(app_->add_option(name, value, help)->delimiter(','));
}

Option Arguments::time(const std::string& name, double& value_s, const std::string& help, double low_s, double high_s) {
  const auto parse = [name, &value_s, low_s, high_s](const std::string& text) {
    const double parsed_s = parse_time(name, text);
    if (parsed_s < low_s || parsed_s > high_s)
      throw UsageError(name, "found " + quote(text), shown_time(low_s) + " to " + shown_time(high_s));
    value_s = parsed_s;
  };
  return Option(app_->add_option_function<std::string>(name, parse, help)->type_name("TIME"));
}

Option Arguments::flag(const std::string& name, bool& value, const std::string& help) {
  return Option(app_->add_flag(name, value, help));
}

void Arguments::footer(const std::string& text) { app_->footer(text); }

bool Arguments::read(int argc, char** argv, const std::string& verb) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app_->help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(verb, shown_message(error.what()));
  } catch (const UsageError& error) {  // from the parser of a value
    throw UsageError(verb, error.field + ": " + error.what() + "; allowed: " + error.allowed);
  }
  return true;
}

}  // namespace mm
