#pragma once
/// The options and operands of a verb. CLI11 reads them, and is included in two files alone: its header takes longer to
/// compile than any file of ours.
#include <map>
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

  /// What `--help` says: an example is its last line.
  explicit Arguments(const std::string& about, const std::string& name = "");
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  /// One option or operand; what it says of itself holds from when it is read.
  class Option {
   public:
    explicit Option(CLI::Option* option) : option_(option) {}
    Option& required();
    Option& show_default();  ///< in `--help`, as it is now
    Option& may_be_bare();   ///< without a value
    Option& from(int least, int most);
    Option& from(double least, double most);
    Option& one_of(const std::vector<std::string>& known);
    Option& of_file();
    Option& of_folder();
    bool given() const;

   private:
    CLI::Option* option_;
  };

  /// A name that begins with no dash is an operand's. The value stays as it is where none is given.
  Option add(const std::string& name, std::string& value, const std::string& help);
  Option add(const std::string& name, std::optional<std::string>& value, const std::string& help);
  Option add(const std::string& name, int& value, const std::string& help);
  Option add(const std::string& name, double& value, const std::string& help);
  Option add(const std::string& name, std::vector<std::string>& value, const std::string& help);  ///< commas between
  /// A time such as 500ms, 10s or 5m, in s; a bare number is s.
  Option time(const std::string& name, double& value_s, const std::string& help, double low_s = 0,
              double high_s = kLongest_s);
  Option flag(const std::string& name, bool& value, const std::string& help);
  /// `before` still works for one release, with a note on standard error, and is not in the help.
  void renamed(const std::string& before, const std::string& now);
  void footer(const std::string& text);

  /// False where `--help` was asked for, which is printed then. UsageError, whose field is `verb`, where they are
  /// wrong.
  bool read(int argc, char** argv, const std::string& verb);

 private:
  std::unique_ptr<CLI::App> app_;
  std::map<std::string, std::string> renamed_;
};

}  // namespace mm
