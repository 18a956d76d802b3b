#pragma once
/// One layout, many syntaxes. Absolute numbers, except where a launcher counts relative to the cgroup: then `allowed`
/// translates.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "types.hpp"

namespace mm::place {

/// A layout in the words of a launcher or run time. `env` and `files` (name → text) go with `words`.
struct Form {
  /// What goes before the command: the program and its options (`mpirun -np 2 …`), then numactl where the launcher has
  /// no words for the memory policy; empty where the environment alone does it. `{NAME}` within a word stands for the
  /// path of the file NAME below.
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::pair<std::string, std::string>> files;  ///< rank files and the like: name, whole text
};

/// openmpi openmpi5 mpich slurm slurm-mask lsf flux omp-places gomp kmp hwloc likwid numactl taskset cpuset parts
const std::vector<std::pair<std::string, std::string>>& forms();  ///< name, one line of help
bool one_mask_only(const std::string& form);                      ///< taskset, numactl …: all parts share one mask
/// UsageError: no such form, a CPU that is not there (or, where numbers are relative, not allowed), a layout or memory
/// policy that this form cannot say; the last names the forms that can.
Form emit(const std::string& form, const Machine& machine, const Layout& layout, const Memory& memory);
std::string line(const Form& form, const std::string& command);  ///< as one would type it; files in the current folder
/// The inverse: of a whole line, an option, a variable's value or a rank file's text. UsageError names the word that is
/// wrong.
Layout parse(const std::string& form, const Machine& machine, const std::string& text);

/// What is wished for: of LSF (LSB_USER_BIND_JOB, LSB_USER_BIND_CPU_LIST, BIND_JOB, LSB_BIND_JOB, LSB_BIND_CPU_LIST,
/// LSB_EFFECTIVE_RSRCREQ, EGO_DEFINE_NCPUS) or ours (MESHMARK_BIND, MESHMARK_SLOTS, which win) in an environment.
struct Wishes {
  std::optional<std::string> bind;  ///< text for parse_bind, or for parse_affinity
  std::optional<SlotKind> kind;
  std::optional<std::string> memory, pages;  ///< of a profile or the site: texts for parse_memory and set_pages
  std::string from;  ///< which variable or file said what: `bind: MESHMARK_BIND`; "" for nothing
};
/// UsageError: a value that is none, or variables that contradict each other.
Wishes wishes_of_environment(const std::vector<std::pair<std::string, std::string>>& environment);
/// What the site (/etc/meshmark.toml, or $MESHMARK_SITE_CONFIG), the application (profile), the user (environment) and
/// the command line say, the last one winning; `from` tells which. `profile` is a name in the site's or the user's file
/// (~/.config/meshmark/config.toml), or "". UsageError names the file and the key.
Wishes settle(const std::string& profile, const std::optional<std::string>& bind_option,
              const std::optional<std::string>& slots_option);

/// `affinity[core(2,same=socket,exclusive=(socket,injob)):cpubind=socket:membind=localonly:distribute=pack]` for
/// `tasks`.
struct Affinity {
  Request request;            ///< policy of `distribute`, slots of all tasks, exclude for the scope alljobs
  Memory memory;              ///< localonly: bind, localprefer: preferred
  std::string unit = "core";  ///< thread core numa socket
  int units_per_task = 1;     ///< in all its groups
  int groups_per_task = 1;    ///< the `*count`; `same` holds within a group
  std::string same;           ///< "", core, numa, socket
  std::string exclusive_level, exclusive_scope;  ///< "" or a level; intask, injob, alljobs, several joined by `|`
  std::string cpubind = "core";                  ///< masks are widened to this level; by default the unit itself
  std::string pack_level;                        ///< pack(LEVEL=1): all of the job in one of them; else ""
};
bool is_affinity(const std::string& text);  ///< begins as one; with LSF's span[hosts=1] before it, too
/// The affinity[…] of a whole resource requirement (`select[…] rusage[…] affinity[…]`); "" where it has none.
/// UsageError in the name of `where`: it has several that differ, or one that does not end.
std::string affinity_of(const std::string& where, const std::string& requirement);
/// UsageError names the word that is wrong.
Affinity parse_affinity(const std::string& text, int tasks);
/// One part a task. UsageError where an empty machine could not hold it, Busy where others hold too much.
Placement place(const Machine& machine, const Affinity& affinity, const Occupancy& taken);

/// meshmark-place translate …
int translate_verb(int argc, char** argv);

}  // namespace mm::place
