#include "form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form emit_slurm(const Machine& machine, const Layout& layout, const Memory& memory, bool masks) {
  Words sets;
  for (const auto& part : layout.parts) masks = masks || part.size() > 1;
  for (const auto& part : layout.parts) sets.push_back(masks ? hex(part) : std::to_string(part[0]));
  Form form{
      {"srun", "-n", count(layout), std::string("--cpu-bind=") + (masks ? "mask_cpu:" : "map_cpu:") + join(sets, ",")},
      {},
      {}};
  if (memory.policy == "local") {
    form.words.emplace_back("--mem-bind=local");
  } else if (memory.policy == "bind") {
    Words nodes;  // one per part, unless listed
    for (const auto& part : layout.parts) nodes.push_back(hex(requested_nodes(machine, memory, part)));
    if (!memory.nodes.empty()) nodes.resize(1);  // Slurm repeats the list for further tasks
    form.words.push_back("--mem-bind=mask_mem:" + join(nodes, ","));
  } else {
    return with_numactl("slurm", form, machine, layout, memory);
  }
  return form;
}

Layout parse_slurm(const Reader& read, const std::string& text) {
  std::string value = after(text, {"--cpu-bind=", "--cpu-bind", "--cpu_bind=", "SLURM_CPU_BIND="});
  for (const char* verbosity : {"verbose,", "quiet,"})
    if (value.starts_with(verbosity)) value = value.substr(std::string(verbosity).size());
  const bool map = value.starts_with("map_cpu:");
  if (!map && !value.starts_with("mask_cpu:")) read.refuse(value);
  Layout layout;
  for (std::string word : split(value.substr(value.find(':') + 1), ',')) {
    const std::size_t times = read.repeats(word, '*');
    if (!map) {
      add(layout, read.mask(word), times);
    } else if (word.starts_with("0x")) {
      if (word.size() < 3 || word.size() > 7 ||
          word.find_first_not_of("0123456789abcdefABCDEF", 2) != std::string::npos)
        read.refuse(word);
      add(layout, {read.known(std::stoi(word, nullptr, 16), word)}, times);
    } else {
      add(layout, {read.known(read.number(word), word)}, times);
    }
  }
  return layout;
}

}  // namespace

std::vector<Syntax> slurm() {
  return {
      {"slurm", "srun: map_cpu for single CPUs, else mask_cpu", "'map_cpu:0,1' or 'mask_cpu:0x11,0x22', with 0*4",
       kAbsolute, false, false, [](auto& m, auto& l, auto& mem) { return emit_slurm(m, l, mem, false); }, parse_slurm},
      {"slurm-mask", "srun: mask_cpu", "'map_cpu:0,1' or 'mask_cpu:0x11,0x22', with 0*4", kAbsolute, false, false,
       [](auto& m, auto& l, auto& mem) { return emit_slurm(m, l, mem, true); }, parse_slurm},
  };
}

}  // namespace mm::place::syntax
