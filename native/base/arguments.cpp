#include "arguments.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

#include "error.hpp"
#include "text.hpp"

namespace mm {

Arguments::Arguments(const std::string& about, const std::string& name)
    : app_(std::make_unique<CLI::App>(about, name)) {}

Arguments::~Arguments() = default;

using Option = Arguments::Option;

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

Option& Option::from(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::from(double least, double most) {
  option_->check(CLI::Range(least, most));
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
  } catch (const CLI::ParseError& wrong) {
    throw UsageError(verb, shown_message(wrong.what()));
  }
  return true;
}

}  // namespace mm
