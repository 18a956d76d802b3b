#pragma once
/// One layout in the syntaxes of many launchers. Numbers are absolute, except for launchers that count relative to the
/// cgroup: their numbers count the CPUs of Machine::group or Machine::allowed.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "place/types.hpp"

namespace mm::place {

/// A layout in the syntax of a launcher or run time. `environment` and `files` (name → text) belong to `words`.
struct Form {
  /// The arguments before the command: the program and its options (`mpirun -np 2 …`), then numactl if the launcher
  /// cannot express the memory policy; empty if the environment suffices. `{NAME}` within an argument stands for the
  /// path of the file NAME below.
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::pair<std::string, std::string>> files;  ///< rank files and others: name, whole text
};

/// What a text in some syntax states.
struct Parsed {
  Layout layout;
  MemoryPolicy memory;                     ///< default if the text has no memory policy
  std::string command = {};                ///< the command that the line starts, quoted for a shell; "" without one
  std::vector<std::string> left_out = {};  ///< options and variables that no other syntax expresses, as written
};

/// openmpi openmpi5 mpich slurm slurm-mask lsf flux jsrun blaunch pbsdsh omp-places gomp kmp hwloc likwid numactl
/// taskset cpuset parts
const std::vector<std::pair<std::string, std::string>>& forms();  ///< name, one line of help
bool one_mask_only(const std::string& form);                      ///< taskset, numactl …: all parts share one mask
/// Throws UsageError for an unknown form, a CPU that does not exist (or, for relative numbers, is not allowed), and a
/// layout or memory policy that this form cannot express; the message then names the forms that can.
Form emit(const std::string& form, const Machine& machine, const Layout& layout, const MemoryPolicy& memory);
std::string line(const Form& form,
                 const std::string& command);  ///< the line as typed in a shell; it writes files to the current folder
/// The inverse of `emit`: parses a whole line, an option, a variable's value or a rank file's text. Throws UsageError
/// with the invalid part.
Parsed parse(const std::string& form, const Machine& machine, const std::string& text);

/// Settings in an environment: LSF's variables (LSB_USER_BIND_JOB, LSB_USER_BIND_CPU_LIST, BIND_JOB, LSB_BIND_JOB,
/// LSB_BIND_CPU_LIST, LSB_EFFECTIVE_RSRCREQ, EGO_DEFINE_NCPUS) or ours (MESHMARK_BIND, MESHMARK_SLOTS), which take
/// precedence.
struct PlacementSettings {
  std::optional<std::string> bind;  ///< text for parse_bind or parse_affinity
  std::optional<SlotKind> kind;
  std::optional<std::string> memory, pages;  ///< from a profile or the site: texts for parse_memory and set_pages
  std::string from;                          ///< source of each setting: `bind: MESHMARK_BIND`; "" if there is none
};
/// Returns the settings in an environment. Throws UsageError for an invalid value, or for variables that contradict
/// each other.
PlacementSettings settings_of_environment(const std::vector<std::pair<std::string, std::string>>& environment);
/// Combines the settings of LSF (EGO_DEFINE_NCPUS of lsf.conf, if LSF_ENVDIR or LSB_JOBID is set), the site
/// (/etc/meshmark.toml, or $MESHMARK_SITE_CONFIG), the application (profile), the user (environment) and the command
/// line; later ones take precedence, and `from` names the sources. `profile` is a name in the site's or the user's file
/// (~/.config/meshmark/config.toml), or "". Throws UsageError with the file and the key.
PlacementSettings read_settings(const std::string& profile, const std::optional<std::string>& bind_option,
                                const std::optional<std::string>& slots_option);

/// An affinity requirement for `tasks`, such as
/// `affinity[core(2,same=socket,exclusive=(socket,injob)):cpubind=socket:membind=localonly:distribute=pack]`.
struct Affinity {
  Request request;            ///< policy of `distribute`, slots of all tasks, exclude for the scope alljobs
  MemoryPolicy memory;        ///< localonly: bind, localprefer: preferred
  std::string unit = "core";  ///< thread core numa socket
  int units_per_task = 1;     ///< units of a task, in all its groups
  int groups_per_task = 1;    ///< the `*count`; `same` applies within a group
  std::string same;           ///< "", core, numa, socket
  std::string exclusive_level, exclusive_scope;  ///< "" or a level; intask, injob, alljobs, several separated by `|`
  std::string cpubind = "core";                  ///< masks are widened to this level; default: the unit itself
  std::string pack_level;  ///< pack(LEVEL=1): the whole job is in one container of this level; otherwise ""
};
bool is_affinity(
    const std::string& text);  ///< returns whether it starts as a requirement, possibly after LSF's span[hosts=1]
/// Returns the affinity[…] of a whole resource requirement (`select[…] rusage[…] affinity[…]`); "" if it has none.
/// Throws UsageError for `where` if it has several different ones, or an unterminated one.
std::string affinity_of(const std::string& where, const std::string& requirement);
/// Parses an affinity requirement. Throws UsageError with the invalid part.
Affinity parse_affinity(const std::string& text, int tasks);
/// Places one part per task. Throws UsageError if an empty machine cannot hold the job, Busy if other jobs hold too
/// much.
Placement place(const Machine& machine, const Affinity& affinity, const Occupancy& taken);

/// meshmark-place translate …
int translate_verb(int argc, char** argv);

}  // namespace mm::place
