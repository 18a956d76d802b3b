#include "form.hpp"

#include <cctype>

namespace mm::place::syntax {

std::string join(const Words& words, const std::string& by) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) text += (i ? by : "") + words[i];
  return text;
}

// Splits like a shell, and removes quotes and backslashes.
Words shell_words(const std::string& text) {
  Words words;
  std::string word;
  bool open = false;
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
      open = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      open = true;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (open) words.push_back(word);
      word.clear();
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (open) words.push_back(word);
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

// The text after one of `keys` in a pasted line, in the same argument or the next; otherwise the whole text.
std::string after(const std::string& text, std::initializer_list<const char*> keys) {
  const Words words = shell_words(text);
  for (const char* key : keys)
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!words[i].starts_with(key)) continue;
      if (std::string rest = words[i].substr(std::string(key).size()); !rest.empty()) return rest;
      if (i + 1 < words.size()) return words[i + 1];
    }
  return join(words, " ");
}

std::vector<int> ascending(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

void add(Layout& layout, const std::vector<int>& part, std::size_t times) {
  if ((layout.parts.size() + times) * part.size() > kMaxNumbers)
    throw UsageError("layout", "too many CPUs in total", "at most 1048576");
  layout.parts.insert(layout.parts.end(), times, ascending(part));
}

Layout singles(const std::vector<int>& cpus) {
  Layout layout;
  for (const int cpu : cpus) layout.parts.push_back({cpu});
  return layout;
}

std::string hex(const std::vector<int>& bits) {
  std::string digits(static_cast<std::size_t>(bits.back()) / 4 + 1, '0');
  for (const int b : bits) {
    char& digit = digits[digits.size() - 1 - static_cast<std::size_t>(b) / 4];
    digit = "0123456789abcdef"[(digit <= '9' ? digit - '0' : digit - 'a' + 10) | 1 << b % 4];
  }
  return "0x" + digits;
}

std::string plain(const std::vector<int>& cpus, const char* by) {
  Words words;
  for (const int cpu : cpus) words.push_back(std::to_string(cpu));
  return join(words, by);
}

std::string lists(const Layout& layout, const char* by) {
  Words words;
  for (const auto& part : layout.parts) words.push_back(cpu_list(part));
  return join(words, by);
}

// CPUs in hwloc's order, core by core.
std::vector<Cpu> in_order(const Machine& machine, const std::vector<int>& among) {
  std::vector<int> online;
  for (const Cpu& cpu : machine.cpus)
    if (std::binary_search(among.begin(), among.end(), cpu.id)) online.push_back(cpu.id);
  std::vector<Cpu> cpus;
  for (const int id : fill_order(machine, "compact", online)) cpus.push_back(machine.cpu(id));
  return cpus;
}

const std::vector<int>& counted(const Machine& machine) {
  return machine.origin == "host" ? machine.group : machine.allowed;
}
std::vector<Cpu> logical(const Machine& machine) { return in_order(machine, counted(machine)); }

[[noreturn]] void no_weights(const std::string& form) {
  throw UsageError(form, "cannot express the memory policy 'weighted'", "meshmark run --memory weighted=…");
}

/// numactl's options for a memory policy; empty for the default.
Words numactl_memory(const std::string& form, const Machine& machine, const Layout& layout, const Memory& memory) {
  if (memory.policy == "default") return {};
  if (memory.policy == "local") return {"--localalloc"};
  const std::vector<int> nodes = requested_nodes(machine, memory, layout.cpus());
  const std::string list = cpu_list(nodes);
  if (memory.policy == "bind") return {"--membind=" + list};
  if (memory.policy == "preferred") return {(nodes.size() == 1 ? "--preferred=" : "--preferred-many=") + list};
  if (memory.policy == "interleave") return {"--interleave=" + list};
  no_weights(form);
}

Form with_numactl(const std::string& form, Form result, const Machine& machine, const Layout& layout,
                  const Memory& memory) {
  const Words words = numactl_memory(form, machine, layout, memory);
  if (words.empty()) return result;
  result.words.emplace_back("numactl");
  result.words.insert(result.words.end(), words.begin(), words.end());
  return result;
}

std::string count(const Layout& layout) { return std::to_string(layout.parts.size()); }

}  // namespace mm::place::syntax
