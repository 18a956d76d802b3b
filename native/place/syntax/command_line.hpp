#pragma once
/// Takes a pasted command line apart: variables, files that it writes, options of the launcher, and the command.
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mm::place::syntax {

using Words = std::vector<std::string>;

/// An option of a launcher: its names separated by spaces, the first of which is its name here, and its number of
/// values.
struct KnownOption {
  const char* names;
  int values;
};

/// The options of a program, and how it writes them.
struct KnownProgram {
  Words names = {};                       ///< file names of the program, such as numactl
  std::vector<KnownOption> options = {};  ///< the options that matter here, and common ones with values
  bool complete = false;                  ///< `options` has all options, so that another one is an error
  Words verbs = {};                       ///< words after the program's name, such as run
  bool unparsed = false;                  ///< options stay in the command, since their order among operands matters
};

/// What a text states, in parts that a syntax takes out; the rest is reported as left out.
class CommandLine {
 public:
  /// `form` names the syntax in errors. Throws UsageError for an unfinished option, or one that the program lacks.
  CommandLine(const std::string& form, const std::string& text, const KnownProgram& known);

  /// Takes the value of an option: "" if it has no value, nullopt if the text does not have the option. Throws
  /// UsageError for an option that is given twice with different values.
  std::optional<std::string> take(const std::string& option);
  std::vector<std::string> take_all(const std::string& option);
  /// Reports this value of an option as left out.
  void put_back(const std::string& option, const std::string& value);
  std::optional<std::string> take_variable(const std::string& name);
  /// Takes the text of a file that the line writes, by the end of its name: `cpuset.cpus` matches job/cpuset.cpus.
  std::optional<std::string> take_file(const std::string& name);
  /// If the line writes a file of this name, renames it to `now`, so that take_file(now) takes it.
  void rename_file(const std::string& name, const std::string& now);
  /// Returns the text if it is only a value: neither variables nor options nor a program. Quotes are removed.
  const std::optional<std::string>& value() const { return value_; }
  const std::string& text() const { return text_; }        ///< the whole text
  const std::string& program() const { return program_; }  ///< "" if the text does not begin with a known program
  const Words& command() const { return command_; }
  void set_command(Words words) { command_ = std::move(words); }
  /// Returns the options, variables and files that nobody took, as they were written.
  Words rest() const;

 private:
  struct Item {
    std::string name, value, written;
  };
  void read_options(const Words& words, std::size_t at, const KnownProgram& known);
  std::optional<std::string> take_of(std::vector<Item>& items, const std::string& name);

  std::string form_, text_, program_;
  std::vector<Item> variables_, files_, options_;
  std::optional<std::string> value_;
  Words command_;
};

std::string join(const Words& words, const std::string& by);
/// Splits like a shell, and removes quotes and backslashes.
Words shell_words(const std::string& text);
std::string shell_quoted(const std::string& word);

}  // namespace mm::place::syntax
