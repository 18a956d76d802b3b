/// Reads the settings of a placement: from the site, the application, the user's environment (including LSF's
/// variables) and the command line.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/options/options.hpp"
#include "base/toml.hpp"
#include "place/binding/bind.hpp"
#include "place/command.hpp"
#include "place/policy/policy.hpp"
#include "place/syntax.hpp"

namespace mm::place {
namespace {

constexpr const char* kSiteFile = "/etc/meshmark.toml";
constexpr std::uintmax_t kMaxBytes = 1 << 20;  // limit of a configuration file

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// LSF separates lists by commas or spaces; policy.hpp expects commas.
std::string as_list(const std::string& variable, std::string text) {
  std::replace(text.begin(), text.end(), ' ', ',');
  parse_cpu_list(variable, text);  // throws if it is not a list
  return "list=" + text;
}

/// Checks that parse_bind accepts `text`, or that it is `user`, which refers to the environment. Throws its UsageError
/// for `where`.
void check_bind(const std::string& where, const std::string& text) {
  if (upper(text) == "USER") return;
  Request scratch;
  try {
    if (is_affinity(text))
      parse_affinity(text, 1);
    else
      parse_bind(text, scratch);
  } catch (const UsageError& error) {
    throw UsageError(where, error.what(), error.allowed);
  }
}

struct Setting {
  std::string variable, value;
};

/// Returns LSF's policy in our syntax; nullopt if it refers to the user's variables.
std::optional<std::string> policy(const Setting& setting) {
  const std::string value = upper(setting.value);
  if (value == "USER" || value == "USER_CPU_LIST") return std::nullopt;
  if (value == "Y" || value == "BALANCE") return "balance";
  if (value == "N" || value == "NONE") return "none";
  if (value == "PACK") return "pack";
  if (value == "ANY") return "any";
  throw UsageError(setting.variable, "found " + quote(setting.value),
                   "Y, N, NONE, BALANCE, PACK, ANY, USER, USER_CPU_LIST");
}

[[noreturn]] void contradict(const Setting& one, const Setting& other) {
  throw UsageError(one.variable,
                   "found " + quote(one.value) + ", which contradicts " + other.variable + "=" + quote(other.value),
                   "only one of them");
}

struct Layer {
  std::optional<std::string> bind, memory, pages;
  std::optional<SlotKind> kind;
};

/// Reads the settings of a table. `settings`: it may contain bind, slots, memory and pages; `profiles`: it may contain
/// the table `profile`.
Layer layer_of(const std::string& file, const std::string& prefix, const toml::table& table, bool settings,
               bool profiles) {
  Layer layer;
  const std::string allowed = std::string(settings ? "bind, slots, memory, pages" : "") +
                              (settings && profiles ? ", " : "") + (profiles ? "[profile.NAME]" : "");
  for (const auto& [key, value] : table) {
    const std::string name(key.str()), where = file + ": " + prefix + name;
    if (profiles && name == "profile" && value.is_table()) continue;
    if (!settings || (name != "bind" && name != "slots" && name != "memory" && name != "pages"))
      throw UsageError(where, "is not a key here", allowed);
    const auto text = value.value<std::string>();
    if (!value.is_string() || !text) throw UsageError(where, "is not a string", "a string such as \"balance\"");
    const auto checked = [&](const auto& check) {
      try {
        return check();
      } catch (const UsageError& error) {
        throw UsageError(where, error.what(), error.allowed);
      }
    };
    if (name == "bind") {
      check_bind(where, *text);
      layer.bind = text;
    } else if (name == "slots") {
      layer.kind = checked([&] { return parse_slot_kind("slots", *text); });
    } else if (name == "memory") {
      checked([&] { return parse_memory(*text); });
      layer.memory = text;
    } else {
      const std::vector<std::string> sizes = page_sizes();
      if (std::find(sizes.begin(), sizes.end(), *text) == sizes.end())
        throw UsageError(where, "found " + quote(*text), joined(sizes));
      layer.pages = text;
    }
  }
  return layer;
}

/// A configuration file, validated completely, so that errors in unused profiles are reported too.
struct Config {
  Layer site;
  std::map<std::string, Layer> profiles;
};

Config read_config(const std::string& file, bool settings) {
  if (file == "/dev/null") return {};  // a common way to disable it
  const FileContent input = read_input(file, kMaxBytes);
  const std::string where = shown_path(file);
  if (!input.wrong.empty()) throw UsageError(where, input.wrong, input.allowed + ", TOML");
  Config config;
  try {
    const toml::table table = toml::parse(input.text, file);
    config.site = layer_of(file, "", table, settings, true);
    if (const toml::table* all = table["profile"].as_table())
      for (const auto& [key, value] : *all) {
        const std::string name(key.str());
        if (!value.is_table())
          throw UsageError(where + ": profile." + shown(name), "is not a table", "[profile." + shown(name) + "]");
        config.profiles[name] = layer_of(file, "profile." + name + ".", *value.as_table(), true, false);
      }
  } catch (const toml::parse_error& error) {
    throw UsageError(
        where, "line " + std::to_string(error.source().begin.line) + ": " + shown_message(error.description()), "TOML");
  }
  return config;
}

/// Returns EGO_DEFINE_NCPUS of LSF's configuration, with the file as its variable; nullopt outside of LSF, without a
/// file, or if the file does not set it. Throws UsageError for a file that cannot be read.
std::optional<Setting> slots_of_lsf() {
  const std::string folder = variable("LSF_ENVDIR");
  if (folder.empty() && variable("LSB_JOBID").empty()) return std::nullopt;
  const std::string file = (folder.empty() ? "/etc" : folder) + "/lsf.conf";
  std::error_code ignored_error;
  if (!std::filesystem::exists(file, ignored_error)) return std::nullopt;
  const FileContent input = read_input(file, kMaxBytes);
  if (!input.wrong.empty()) throw UsageError(shown_path(file), input.wrong, input.allowed + ", lsf.conf of LSF");
  constexpr std::string_view kKey = "EGO_DEFINE_NCPUS";
  std::optional<Setting> setting;
  for (std::string line : split(input.text, '\n')) {
    std::erase_if(line, [](unsigned char c) { return std::isspace(c) || c == '"' || c == '\''; });
    if (line.starts_with(std::string(kKey) + "="))
      setting = Setting{shown_path(file) + ": " + std::string(kKey), line.substr(kKey.size() + 1)};
  }
  return setting && setting->value.empty() ? std::nullopt : setting;
}

std::string user_file() {
  if (const std::string folder = variable("XDG_CONFIG_HOME"); !folder.empty()) return folder + "/meshmark/config.toml";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.config/meshmark/config.toml";
  return "";
}

// Later layers take precedence, per key; `from` records the source of each value.
struct Merged {
  PlacementSettings settings;
  std::map<std::string, std::string> sources;

  template <class T>
  void set(const char* what, std::optional<T>& into, const std::optional<T>& setting, const std::string& source) {
    if (!setting) return;
    into = setting;
    sources[what] = source;
  }
  void set(const Layer& layer, const std::string& source) {
    set("bind", settings.bind, layer.bind, source);
    set("slots", settings.kind, layer.kind, source);
    set("memory", settings.memory, layer.memory, source);
    set("pages", settings.pages, layer.pages, source);
  }
  PlacementSettings result() {
    for (const auto& [what, source] : sources)
      settings.from += (settings.from.empty() ? "" : "; ") + what + ": " + source;
    return settings;
  }
};

/// `overridden`: the command line sets a policy, so parts of LSF's resource requirement that only LSF understands are
/// harmless.
Merged merge_environment(const std::vector<std::pair<std::string, std::string>>& environment, bool overridden) {
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : environment)
    if (!value.empty()) variables[name] = value;
  const auto find = [&](const char* name) -> std::optional<Setting> {
    const auto at = variables.find(name);
    if (at == variables.end()) return std::nullopt;
    return Setting{at->first, at->second};
  };
  const auto user_policy = find("LSB_USER_BIND_JOB"), site_policy = find("BIND_JOB"), lsf_policy = find("LSB_BIND_JOB");
  const auto user_list = find("LSB_USER_BIND_CPU_LIST"), lsf_list = find("LSB_BIND_CPU_LIST");
  Merged merged;

  // The policy requested from LSF: the profile's BIND_JOB, or the user's variables if it refers to them.
  std::optional<Setting> requested;  // the variable that names an actual policy
  for (const auto& setting : {site_policy, user_policy}) {
    if (!setting || !policy(*setting)) continue;
    if (requested && policy(*requested) != policy(*setting)) contradict(*setting, *requested);
    requested = setting;
  }
  if (requested && user_list) contradict(*requested, *user_list);
  for (const auto& setting : {site_policy, user_policy})
    if (setting && upper(setting->value) == "USER_CPU_LIST" && !user_list && !lsf_list)
      throw UsageError("LSB_USER_BIND_CPU_LIST", "is not set, but " + setting->variable + "=USER_CPU_LIST requires it",
                       "a list such as 1,2,5,7-9");
  if (requested) merged.set<std::string>("bind", merged.settings.bind, policy(*requested), requested->variable);
  if (user_list)
    merged.set<std::string>("bind", merged.settings.bind, as_list(user_list->variable, user_list->value),
                            user_list->variable);

  // The decision of LSF: these CPUs belong to the job, whatever policy chose them.
  if (lsf_policy && !lsf_list && policy(*lsf_policy) && !merged.settings.bind)
    merged.set<std::string>("bind", merged.settings.bind, policy(*lsf_policy), lsf_policy->variable);
  if (lsf_list) {
    const std::string list = as_list(lsf_list->variable, lsf_list->value);
    for (const auto& setting : {requested, lsf_policy})
      if (setting && policy(*setting) == "none") contradict(*setting, *lsf_list);
    if (user_list && merged.settings.bind &&
        parse_cpu_list("list", merged.settings.bind->substr(5)) != parse_cpu_list("list", list.substr(5)))
      contradict(*user_list, *lsf_list);
    merged.set<std::string>("bind", merged.settings.bind, list, lsf_list->variable);
  }
  const auto meshmark_bind = find("MESHMARK_BIND");
  const bool sets_policy = meshmark_bind && upper(meshmark_bind->value) != "USER";
  // When LSF schedules by affinity, it ignores BIND_JOB; a list is then its result for the affinity string.
  if (const auto requirement = find("LSB_EFFECTIVE_RSRCREQ"); requirement && !lsf_list && !sets_policy && !overridden)
    if (const std::string text = affinity_of(requirement->variable, requirement->value); !text.empty()) {
      check_bind(requirement->variable, text);
      merged.set<std::string>("bind", merged.settings.bind, text, requirement->variable);
    }
  if (const auto setting = find("EGO_DEFINE_NCPUS"))
    merged.set<SlotKind>("slots", merged.settings.kind, parse_slot_kind(setting->variable, setting->value),
                         setting->variable);
  if (sets_policy) {
    check_bind(meshmark_bind->variable, meshmark_bind->value);
    merged.set<std::string>("bind", merged.settings.bind, meshmark_bind->value, meshmark_bind->variable);
  }
  if (const auto setting = find("MESHMARK_SLOTS"))
    merged.set<SlotKind>("slots", merged.settings.kind, parse_slot_kind(setting->variable, setting->value),
                         setting->variable);
  return merged;
}

}  // namespace

PlacementSettings settings_of_environment(const std::vector<std::pair<std::string, std::string>>& environment) {
  return merge_environment(environment, false).result();
}

PlacementSettings read_settings(const std::string& profile, const std::optional<std::string>& bind_option,
                                const std::optional<std::string>& slots_option) {
  Merged merged;
  std::map<std::string, std::pair<Layer, std::string>> profiles;  // name → its settings, its file
  const std::string configured_site = variable("MESHMARK_SITE_CONFIG"),
                    site = configured_site.empty() ? kSiteFile : configured_site;
  const auto read = [&](const std::string& file, bool settings) {
    const Config config = read_config(file, settings);
    merged.set(config.site, file);
    for (const auto& [name, layer] : config.profiles) profiles[name] = {layer, file};
  };
  if (const auto slots = slots_of_lsf())
    merged.set<SlotKind>("slots", merged.settings.kind, parse_slot_kind(slots->variable, slots->value),
                         slots->variable);
  std::error_code ignored_error;  // ignores folders that this user may not access, such as HOME after setpriv
  if (!configured_site.empty() || std::filesystem::exists(site, ignored_error)) read(site, true);
  if (const std::string user = user_file(); !user.empty() && std::filesystem::exists(user, ignored_error))
    read(user, false);
  if (!profile.empty()) {
    const auto entry = profiles.find(profile);
    if (entry == profiles.end()) {
      std::string profile_names;
      for (const auto& [name, layer] : profiles) profile_names += (profile_names.empty() ? "" : ", ") + name;
      throw UsageError("--profile", "found " + quote(profile),
                       profile_names.empty() ? "none: " + site + " has no [profile.NAME]" : profile_names);
    }
    merged.set(entry->second.first, "profile " + profile + " of " + entry->second.second);
  }
  const bool overridden = bind_option && upper(*bind_option) != "USER";
  const Merged user = merge_environment(environment(), overridden);
  if (user.settings.bind)
    merged.set<std::string>("bind", merged.settings.bind, user.settings.bind, user.sources.at("bind"));
  if (user.settings.kind)
    merged.set<SlotKind>("slots", merged.settings.kind, user.settings.kind, user.sources.at("slots"));
  if (bind_option) {
    check_bind("--bind", *bind_option);
    merged.set<std::string>("bind", merged.settings.bind, bind_option, "--bind");
  }
  if (slots_option)
    merged.set<SlotKind>("slots", merged.settings.kind, parse_slot_kind("--slots", *slots_option), "--slots");
  return merged.result();
}

}  // namespace mm::place
