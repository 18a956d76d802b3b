#include "arguments.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "error.hpp"
#include "options.hpp"
#include "text.hpp"

namespace mm {

Arguments::Arguments(const std::string& about, const std::string& name)
    : app_(std::make_unique<CLI::App>(about, name)) {}

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
    const double found_s = parse_time(name, text);
    if (found_s < low_s || found_s > high_s)
      throw UsageError(name, "found " + quote(text), shown_time(low_s) + " to " + shown_time(high_s));
    value_s = found_s;
  };
  return Option(app_->add_option_function<std::string>(name, parse, help)->type_name("TIME"));
}

Option Arguments::flag(const std::string& name, bool& value, const std::string& help) {
  return Option(app_->add_flag(name, value, help));
}

void Arguments::footer(const std::string& text) { app_->footer(text); }

void Arguments::renamed(const std::string& before, const std::string& now) { renamed_[before] = now; }

bool Arguments::read(int argc, char** argv, const std::string& verb) {
  std::vector<const char*> arguments(argv, argv + argc);
  for (const char*& argument : arguments) {
    const auto at = renamed_.find(argument);
    if (at == renamed_.end()) continue;
    std::fprintf(stderr, "meshmark: note: %s is now %s; the old name will be removed in 0.2.0\n", argument,
                 at->second.c_str());
    argument = at->second.c_str();
  }
  try {
    app_->parse(argc, arguments.data());
  } catch (const CLI::CallForHelp&) {
    std::cout << app_->help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(verb, shown_message(error.what()));
  } catch (const UsageError& error) {  // of a value
    throw UsageError(verb, error.field + ": " + error.what() + "; allowed: " + error.allowed);
  }
  return true;
}

}  // namespace mm
