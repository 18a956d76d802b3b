#include "place/syntax/command_line.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/options/options.hpp"

namespace mm::place::syntax {
namespace {

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Names of variables begin with a capital; names of cgroup files have a dot.
bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  if (std::isupper(static_cast<unsigned char>(word[0])) == 0 && word.substr(0, equals).find('.') == std::string::npos)
    return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
}

bool names_program(const KnownProgram& known, const std::string& word) {
  return std::find(known.names.begin(), known.names.end(), file_name(word)) != known.names.end();
}

bool long_names_have_one_dash(const KnownProgram& known) {
  for (const KnownOption& option : known.options)
    for (const std::string& name : shell_words(option.names))
      if (name.size() > 2 && name[1] != '-') return true;
  return false;
}

struct Match {
  std::string name;  // the first of the option's names; "" if none matches
  int values = 0;
  std::optional<std::string> attached;
};

// Matches `--option`, `--option=value`, `-o`, `-ovalue`, and long names that are abbreviated without ambiguity.
Match match_option(const KnownProgram& known, const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string written = word.substr(0, equals);
  std::vector<Match> abbreviated;
  for (const KnownOption& option : known.options) {
    const Words names = shell_words(option.names);
    for (const std::string& name : names) {
      Match match{names.front(), option.values, std::nullopt};
      if (equals != std::string::npos) match.attached = word.substr(equals + 1);
      if (word == name) return {names.front(), option.values, std::nullopt};
      if (written == name && equals != std::string::npos && (name.size() > 2 || option.values == 0)) return match;
      if (name.starts_with("--") && written.size() > 2 && name.starts_with(written)) abbreviated.push_back(match);
    }
  }
  if (!abbreviated.empty() && std::all_of(abbreviated.begin(), abbreviated.end(),
                                          [&](const Match& m) { return m.name == abbreviated[0].name; }))
    return abbreviated.front();
  if (long_names_have_one_dash(known)) return {};
  for (const KnownOption& option : known.options)
    for (const std::string& name : shell_words(option.names))
      if (name.size() == 2 && name[0] == '-' && name[1] != '-' && option.values == 1 && word.starts_with(name))
        return {shell_words(option.names).front(), 1, word.substr(word[2] == '=' ? 3 : 2)};
  return {};
}

// Splits `-pc` into `-p -c`; the last one may take a value.
Words separated(const KnownProgram& known, const std::string& word) {
  if (word.size() < 3 || word[0] != '-' || word[1] == '-' || !match_option(known, word).name.empty()) return {word};
  Words words;
  for (std::size_t i = 1; i < word.size(); ++i) {
    const Match match = match_option(known, std::string("-") + word[i]);
    if (match.name.empty()) return {word};
    words.push_back(std::string("-") + word[i] + (match.values > 0 ? word.substr(i + 1) : ""));
    if (match.values > 0) break;
  }
  return words;
}

}  // namespace

std::string join(const Words& words, const std::string& by) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) text += (i ? by : "") + words[i];
  return text;
}

Words shell_words(const std::string& text) {
  Words words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (in_word) words.push_back(word);
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (in_word) words.push_back(word);
  return words;
}

std::string shell_quoted(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-") ==
          std::string::npos)
    return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

CommandLine::CommandLine(const std::string& form, const std::string& text, const KnownProgram& known)
    : form_(form), text_(text) {
  const Words words = shell_words(text);
  std::size_t at = 0;
  bool variables = false;
  while (at < words.size()) {
    const std::string& word = words[at];
    if (word == "printf" || word == "echo") {  // … > FILE, or … | tee FILE
      const auto end = std::find_if(words.begin() + static_cast<std::ptrdiff_t>(at), words.end(),
                                    [](const std::string& w) { return w == ">" || w == ">>" || w == "tee"; });
      if (words.end() - end < 2) break;
      Words lines(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, end);
      if (word == "printf" && !lines.empty()) lines.erase(lines.begin());
      while (!lines.empty() && (lines.back() == "|" || lines.back() == "sudo")) lines.pop_back();
      std::size_t file = static_cast<std::size_t>(end - words.begin()) + 1;
      if (words[file] == "-a" && file + 1 < words.size()) ++file;
      const std::string path = words[file].substr(0, words[file].find(';'));
      files_.push_back({path, join(lines, "\n") + "\n", "the file " + path});
      at = file + 1;
    } else if (word == "&&" || word == ";" || word == "env" || word == "export" || word == "exec") {
      ++at;
    } else if (is_assignment(word)) {
      const std::size_t equals = word.find('=');
      variables_.push_back({word.substr(0, equals), word.substr(equals + 1), word});
      variables = true;
      ++at;
    } else {
      break;
    }
  }
  if (at < words.size() && names_program(known, words[at])) program_ = file_name(words[at++]);
  while (!program_.empty() && at < words.size() &&
         std::find(known.verbs.begin(), known.verbs.end(), words[at]) != known.verbs.end())
    ++at;
  const bool has_options = !program_.empty() || (at < words.size() && words[at].size() > 1 && words[at][0] == '-');
  if (has_options && !known.unparsed)
    read_options(words, at, known);
  else if (variables || !files_.empty() || known.unparsed)
    command_.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  else
    value_ = join(words, " ");
}

void CommandLine::read_options(const Words& all, std::size_t at, const KnownProgram& known) {
  Words words(all.begin() + static_cast<std::ptrdiff_t>(at), all.end());
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i];
    if (word == "--" || word.size() < 2 || word[0] != '-') {
      command_.assign(words.begin() + static_cast<std::ptrdiff_t>(i + (word == "--" ? 1 : 0)), words.end());
      return;
    }
    const Words letters = separated(known, word);
    if (letters.size() > 1) {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), letters.begin(), letters.end());
    }
    const std::string& option = words[i];
    const Match match = match_option(known, option);
    Item item{match.name, match.attached.value_or(""), option};
    if (match.name.empty() && known.complete) {
      Words names;
      for (const KnownOption& known_option : known.options) names.push_back(shell_words(known_option.names).front());
      throw UsageError(form_, "found the option " + quote(option), join(names, ", "));
    }
    if (!match.name.empty() && match.values > 0 && !match.attached) {
      if (i + static_cast<std::size_t>(match.values) >= words.size())
        throw UsageError(form_, "found " + quote(option) + " without its value", option + " and a value");
      for (int n = 0; n < match.values; ++n) item.value += (n > 0 ? " " : "") + words[++i];
      item.written += " " + item.value;
    } else if (match.name.empty() && option.find('=') == std::string::npos && i + 2 < words.size() &&
               words[i + 1][0] != '-' && words[i + 1].find('/') == std::string::npos && words[i + 1] != "numactl") {
      item.written += " " + words[++i];  // an unknown option may have a value
    }
    options_.push_back(std::move(item));
  }
}

std::optional<std::string> CommandLine::take_of(std::vector<Item>& items, const std::string& name) {
  std::optional<std::string> value;
  for (const Item& item : items) {
    if (item.name != name) continue;
    if (value && *value != item.value)
      throw UsageError(form_, "found " + quote(item.written) + " after another value of the same name", "it once");
    value = item.value;
  }
  std::erase_if(items, [&](const Item& item) { return item.name == name; });
  return value;
}

std::optional<std::string> CommandLine::take(const std::string& option) { return take_of(options_, option); }

std::vector<std::string> CommandLine::take_all(const std::string& option) {
  std::vector<std::string> values;
  for (const Item& item : options_)
    if (item.name == option) values.push_back(item.value);
  std::erase_if(options_, [&](const Item& item) { return item.name == option; });
  return values;
}

void CommandLine::put_back(const std::string& option, const std::string& value) {
  options_.push_back({option, value, option + " " + value});
}

std::optional<std::string> CommandLine::take_variable(const std::string& name) { return take_of(variables_, name); }

std::optional<std::string> CommandLine::take_file(const std::string& name) {
  for (const Item& item : files_)
    if (file_name(item.name) == name) return take_of(files_, item.name);
  return std::nullopt;
}

void CommandLine::rename_file(const std::string& name, const std::string& now) {
  for (Item& item : files_)
    if (file_name(item.name) == file_name(name)) item.name = now;
}

Words CommandLine::rest() const {
  Words words;
  for (const auto* items : {&variables_, &files_, &options_})
    for (const Item& item : *items) words.push_back(item.written);
  return words;
}

}  // namespace mm::place::syntax
