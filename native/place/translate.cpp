#include <algorithm>
#include <iostream>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "place/binding/bind.hpp"
#include "place/command.hpp"
#include "place/syntax.hpp"
#include "place/syntax/form.hpp"

namespace mm::place {
using namespace syntax;

namespace {

constexpr std::size_t kMaxText = 1 << 20;  // bytes of standard input

json to_json(const Form& form, const std::string& command) {
  json environment = json::object(), files = json::object();
  for (const auto& [name, value] : form.environment) environment[name] = value;
  for (const auto& [name, text] : form.files) files[name] = text;
  return {{"line", line(form, command)}, {"words", form.words}, {"environment", environment}, {"files", files}};
}

std::string of_input(const std::string& text) {
  if (text != "-") return text;
  std::string all;
  for (char c = 0; all.size() <= kMaxText && std::cin.get(c);) all += c;
  if (all.size() > kMaxText) throw UsageError("TEXT", "standard input has more than 1 MiB", "a line or a rank file");
  return all;
}

/// Returns the words after `--` as one text. One word is a whole line or value that the user has quoted.
std::string text_of(const std::vector<std::string>& words) {
  if (words.size() == 1) return words.front();
  Words quoted;
  for (const std::string& word : words) quoted.push_back(shell_quoted(word));
  return join(quoted, " ");
}

/// What a text binds, and the words in it that other forms do not express.
struct Translated {
  Layout layout;
  MemoryPolicy memory;
  Words left_out;
  std::string command;  ///< the command in the text; "" if it has none
};

/// Reads the CPUs of `parts`, or a text of the syntax `from`.
Translated read_layout(const Machine& machine, const std::string& from, const std::string& parts,
                       const std::string& text, int tasks) {
  if (!parts.empty()) return {parse("parts", machine, parts).layout, {}, {}, ""};
  if (from == "affinity") {
    const Affinity affinity = parse_affinity(of_input(text), tasks);
    return {place(machine, affinity, {}).layout, affinity.memory, {}, ""};
  }
  const Parsed parsed = parse(from, machine, of_input(text));
  return {parsed.layout, parsed.memory, parsed.left_out, parsed.command};
}

}  // namespace

int translate_verb(int argc, char** argv) {
  std::string from = "parts", text, parts, to_text = "all", topology = "host", memory_option, command = "./a.out";
  int tasks = 1;
  bool as_json = false;
  const auto dashes =
      std::find_if(argv, argv + argc, [](const char* argument) { return std::string(argument) == "--"; });
  const bool behind_dashes = argv + argc - dashes > 1;
  Arguments app{
      "Translate a layout and its memory policy into the syntax of other launchers. A TEXT that begins with a "
      "dash must follow --.\n\n"
      "example: meshmark translate --from numactl --to slurm,cpuset -- -N 0 -m 0",
      "meshmark translate"};
  app.add("--from", from, "syntax of TEXT, or `affinity` (LSF's affinity[…])").show_default();
  app.add("TEXT", text, "a line, an option's or variable's value, or a rank file's text; -: standard input");
  app.add("--parts", parts, "CPUs of the parts, such as '0,4;1,5', instead of --from and TEXT");
  app.add("--to", to_text, "syntaxes, comma-separated, or all").show_default();
  app.add("--topology", topology, "host, a synthetic description, or an XML file of hwloc").show_default();
  app.add("--memory", memory_option, "memory policy, such as bind or interleave=0-1 [the policy of TEXT]");
  app.add("--tasks", tasks, "tasks, for --from affinity").from(1, 1 << 16).show_default();
  const Arguments::Option commands =
      app.add("--command", command, "program in the printed lines [the program of TEXT, or ./a.out]");
  app.flag("--json", as_json, "print one JSON object");
  std::string all = "forms:\n";
  for (const Syntax& s : syntaxes())
    all += "  " + std::string(s.name) + std::string(12 - std::string(s.name).size(), ' ') + s.help + "\n";
  app.footer(all);
  try {
    if (!app.read(static_cast<int>(dashes - argv), argv, "translate")) return 0;
  } catch (const UsageError& error) {
    if (dashes != argv + argc) throw;
    throw with_dashes_hint(error, "meshmark translate --from " + from + " [OPTIONS] -- TEXT");
  }
  if (behind_dashes) {
    if (!text.empty()) throw UsageError("TEXT", "found " + quote(text) + " and more after --", "one of the two");
    text = text_of({dashes + 1, argv + argc});
  }
  if (parts.empty() == text.empty())
    throw UsageError("TEXT", parts.empty() ? "is missing" : "found together with --parts", "TEXT or --parts");
  const Machine machine = machine_of(topology);
  Translated translated = read_layout(machine, from, parts, text, tasks);
  if (!memory_option.empty()) translated.memory = parse_memory(memory_option);
  if (!commands.given() && !translated.command.empty()) command = translated.command;
  const auto& [layout, memory, left_out, unused] = translated;
  const bool to_all = to_text == "all";
  Words to = split(to_text, ',');
  if (to_all) {
    to.clear();
    for (const Syntax& s : syntaxes()) to.emplace_back(s.name);
  }
  json forms = json::object(), refused = json::object();
  for (const std::string& form : to) {
    try {
      forms[form] = to_json(emit(form, machine, layout, memory), form == "parts" ? "" : command);
      forms[form]["numbers"] = syntax_of(form).numbers;
    } catch (const UsageError& error) {
      if (!to_all) throw;
      refused[form] = error.what();
    }
  }
  const std::vector<int> cpus = layout.cpus();
  const bool inside = std::includes(machine.allowed.begin(), machine.allowed.end(), cpus.begin(), cpus.end());
  Layout relative_layout;
  if (inside)
    for (const auto& part : layout.parts) relative_layout.parts.push_back(relative(part, machine.allowed));
  if (as_json) {
    std::cout << to_line({{"parts", layout.parts},
                          {"relative", inside ? json(relative_layout.parts) : json()},
                          {"allowed", machine.allowed},
                          {"memory", memory.policy == "default" ? json() : json(memory_text(memory))},
                          {"pages", memory.pages == "default" ? json() : json(memory.pages)},
                          {"left_out", left_out},
                          {"forms", forms},
                          {"refused", refused}})
              << "\n";
    return 0;
  }
  std::cout << "CPUs " << lists(layout, ";") << " (relative to the allowed " << cpu_list(machine.allowed) << ": "
            << (inside ? lists(relative_layout, ";") : "some are not allowed") << ")\n";
  if (memory.policy != "default") std::cout << "memory: " << memory_text(memory) << "\n";
  if (memory.pages != "default") std::cout << "pages: " << memory.pages << "\n";
  if (!left_out.empty()) std::cout << "left out, since no other form expresses it: " << join(left_out, ", ") << "\n";
  for (const std::string& form : to) {
    std::cout << "\n" << form << "\n";
    if (forms.contains(form))
      std::cout << "  " << forms[form]["line"].get<std::string>() << "\n";
    else
      std::cout << "  cannot: " << refused[form].get<std::string>() << "\n";
  }
  return 0;
}

}  // namespace mm::place
