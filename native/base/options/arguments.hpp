#pragma once
/// Options and operands of a verb. CLI11 parses them; only two files include its header, which is expensive to compile.
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mm {

class Arguments {
 public:
  static constexpr double kLongest_s = 1000 * 3600;

  /// `about` is the text of `--help`; its last line is an example. `name` is the command, or a whole usage line with
  /// [OPTIONS].
  explicit Arguments(const std::string& about, const std::string& name = "");
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  /// One option or operand. Its setters apply to later parsing.
  class Option {
   public:
    explicit Option(CLI::Option* option) : option_(option) {}
    Option& required();
    Option& show_default();  ///< shows the current value in `--help`
    Option& may_be_bare();   ///< the value is optional
    Option& from(int min, int max);
    Option& from(double min, double max);
    Option& one_of(const std::vector<std::string>& known);
    Option& of_file();
    Option& of_folder();
    bool given() const;

   private:
    CLI::Option* option_;
  };

  /// Adds an option, or an operand if the name has no leading dash. `value` keeps its content if the option is not
  /// given.
  Option add(const std::string& name, std::string& value, const std::string& help);
  Option add(const std::string& name, std::optional<std::string>& value, const std::string& help);
  Option add(const std::string& name, int& value, const std::string& help);
  Option add(const std::string& name, double& value, const std::string& help);
  Option add(const std::string& name, std::vector<std::string>& value, const std::string& help);  ///< comma-separated
  /// Adds an option for a time such as 500ms, 10s or 5m, which is converted to s; a bare number is in s.
  Option time(const std::string& name, double& value_s, const std::string& help, double low_s = 0,
              double high_s = kLongest_s);
  Option flag(const std::string& name, bool& value, const std::string& help);
  void footer(const std::string& text);

  /// Parses the command line. Returns false after printing `--help`. Throws UsageError with field `verb` on invalid
  /// arguments.
  bool read(int argc, char** argv, const std::string& verb);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace mm
