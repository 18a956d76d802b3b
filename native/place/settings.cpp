/// Who wishes what: the site, the application, the user's environment (also in LSF's words), the command line.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>

#include "bind.hpp"
#include "command.hpp"
#include "error.hpp"
#include "input_file.hpp"
#include "options.hpp"
#include "policy.hpp"
#include "syntax.hpp"
#include "toml.hpp"

namespace mm::place {
namespace {

constexpr const char* kSiteFile = "/etc/meshmark.toml";
constexpr std::uintmax_t kMaxBytes = 1 << 20;  // of a configuration file

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// LSF writes lists with commas or blanks; policy.hpp reads commas.
std::string as_list(const std::string& variable, std::string text) {
  std::replace(text.begin(), text.end(), ' ', ',');
  parse_cpu_list(variable, text);  // refuses what is no list
  return "list=" + text;
}

/// `text` is one that parse_bind takes, or `user`, which is left to the environment; else its complaint in the name of
/// `where`.
void check_bind(const std::string& where, const std::string& text) {
  if (upper(text) == "USER") return;
  Request scratch;
  try {
    if (is_affinity(text))
      parse_affinity(text, 1);
    else
      parse_bind(text, scratch);
  } catch (const UsageError& wrong) {
    throw UsageError(where, wrong.what(), wrong.allowed);
  }
}

struct Said {
  std::string variable, value;
};

/// LSF's policy in our words; nullopt where it says that the user's variables count.
std::optional<std::string> policy(const Said& said) {
  const std::string value = upper(said.value);
  if (value == "USER" || value == "USER_CPU_LIST") return std::nullopt;
  if (value == "Y" || value == "BALANCE") return "balance";
  if (value == "N" || value == "NONE") return "none";
  if (value == "PACK") return "pack";
  if (value == "ANY") return "any";
  throw UsageError(said.variable, "found " + quote(said.value), "Y, N, NONE, BALANCE, PACK, ANY, USER, USER_CPU_LIST");
}

[[noreturn]] void contradict(const Said& one, const Said& other) {
  throw UsageError(one.variable,
                   "found " + quote(one.value) + ", which contradicts " + other.variable + "=" + quote(other.value),
                   "one of them");
}

struct Layer {
  std::optional<std::string> bind, memory, pages;
  std::optional<SlotKind> kind;
};

/// Reads bind, slots, memory, pages of a table; `profiles`: it may hold the table `profile` besides.
Layer layer_of(const std::string& file, const std::string& prefix, const toml::table& table, bool settings,
               bool profiles) {
  Layer layer;
  const std::string allowed = std::string(settings ? "bind, slots, memory, pages" : "") +
                              (settings && profiles ? ", " : "") + (profiles ? "[profile.NAME]" : "");
  for (const auto& [key, value] : table) {
    const std::string name(key.str()), where = file + ": " + prefix + name;
    if (profiles && name == "profile" && value.is_table()) continue;
    if (!settings || (name != "bind" && name != "slots" && name != "memory" && name != "pages"))
      throw UsageError(where, "is no key here", allowed);
    const auto text = value.value<std::string>();
    if (!value.is_string() || !text) throw UsageError(where, "is no text", "a text such as \"balance\"");
    const auto checked = [&](const auto& check) {
      try {
        return check();
      } catch (const UsageError& wrong) {
        throw UsageError(where, wrong.what(), wrong.allowed);
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
      const std::vector<std::string> known = page_sizes();
      if (std::find(known.begin(), known.end(), *text) == known.end())
        throw UsageError(where, "found " + quote(*text), joined(known));
      layer.pages = text;
    }
  }
  return layer;
}

/// A configuration file, checked whole: a mistake in a profile is told before somebody needs it.
struct Config {
  Layer site;
  std::map<std::string, Layer> profiles;
};

Config read_config(const std::string& file, bool settings) {
  if (file == "/dev/null") return {};  // none, as people say it
  const Input input = read_input(file, kMaxBytes);
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
          throw UsageError(where + ": profile." + shown(name), "is no table", "[profile." + shown(name) + "]");
        config.profiles[name] = layer_of(file, "profile." + name + ".", *value.as_table(), true, false);
      }
  } catch (const toml::parse_error& wrong) {
    throw UsageError(
        where, "line " + std::to_string(wrong.source().begin.line) + ": " + shown_message(wrong.description()), "TOML");
  }
  return config;
}

std::string user_file() {
  if (const std::string folder = variable("XDG_CONFIG_HOME"); !folder.empty()) return folder + "/meshmark/config.toml";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.config/meshmark/config.toml";
  return "";
}

// The later layer wins, word by word, and `from` remembers who said what.
struct Settled {
  Wishes wishes;
  std::map<std::string, std::string> who;

  template <class T>
  void take(const char* what, std::optional<T>& into, const std::optional<T>& said, const std::string& by) {
    if (!said) return;
    into = said;
    who[what] = by;
  }
  void take(const Layer& layer, const std::string& by) {
    take("bind", wishes.bind, layer.bind, by);
    take("slots", wishes.kind, layer.kind, by);
    take("memory", wishes.memory, layer.memory, by);
    take("pages", wishes.pages, layer.pages, by);
  }
  Wishes done() {
    for (const auto& [what, by] : who) wishes.from += (wishes.from.empty() ? "" : "; ") + what + ": " + by;
    return wishes;
  }
};

/// `overruled`: the command line says a policy, so that what only LSF understands of its resource requirement does no
/// harm.
Settled environment_settled(const std::vector<std::pair<std::string, std::string>>& environment, bool overruled) {
  std::map<std::string, std::string> set;
  for (const auto& [name, value] : environment)
    if (!value.empty()) set[name] = value;
  const auto find = [&](const char* name) -> std::optional<Said> {
    const auto at = set.find(name);
    if (at == set.end()) return std::nullopt;
    return Said{at->first, at->second};
  };
  const auto user_policy = find("LSB_USER_BIND_JOB"), site_policy = find("BIND_JOB"), lsf_policy = find("LSB_BIND_JOB");
  const auto user_list = find("LSB_USER_BIND_CPU_LIST"), lsf_list = find("LSB_BIND_CPU_LIST");
  Settled settled;

  // What LSF was asked for: the profile's BIND_JOB, and where that leaves it to the user, the user's variables.
  std::optional<Said> asked;  // the variable that names a policy of its own
  for (const auto& said : {site_policy, user_policy}) {
    if (!said || !policy(*said)) continue;
    if (asked && policy(*asked) != policy(*said)) contradict(*said, *asked);
    asked = said;
  }
  if (asked && user_list) contradict(*asked, *user_list);
  for (const auto& said : {site_policy, user_policy})
    if (said && upper(said->value) == "USER_CPU_LIST" && !user_list && !lsf_list)
      throw UsageError("LSB_USER_BIND_CPU_LIST", "is not set, but " + said->variable + "=USER_CPU_LIST asks for it",
                       "a list such as 1,2,5,7-9");
  if (asked) settled.take<std::string>("bind", settled.wishes.bind, policy(*asked), asked->variable);
  if (user_list)
    settled.take<std::string>("bind", settled.wishes.bind, as_list(user_list->variable, user_list->value),
                              user_list->variable);

  // What LSF decided: these CPUs are the job's, by whatever policy it found them.
  if (lsf_policy && !lsf_list && policy(*lsf_policy) && !settled.wishes.bind)
    settled.take<std::string>("bind", settled.wishes.bind, policy(*lsf_policy), lsf_policy->variable);
  if (lsf_list) {
    const std::string list = as_list(lsf_list->variable, lsf_list->value);
    for (const auto& said : {asked, lsf_policy})
      if (said && policy(*said) == "none") contradict(*said, *lsf_list);
    if (user_list && settled.wishes.bind &&
        parse_cpu_list("list", settled.wishes.bind->substr(5)) != parse_cpu_list("list", list.substr(5)))
      contradict(*user_list, *lsf_list);
    settled.take<std::string>("bind", settled.wishes.bind, list, lsf_list->variable);
  }
  const auto own = find("MESHMARK_BIND");
  const bool own_policy = own && upper(own->value) != "USER";
  // Where LSF schedules by affinity, it disregards BIND_JOB; the list, if there is one, is what it made of the string.
  if (const auto requirement = find("LSB_EFFECTIVE_RSRCREQ"); requirement && !lsf_list && !own_policy && !overruled)
    if (const std::string text = affinity_of(requirement->variable, requirement->value); !text.empty()) {
      check_bind(requirement->variable, text);
      settled.take<std::string>("bind", settled.wishes.bind, text, requirement->variable);
    }
  if (const auto said = find("EGO_DEFINE_NCPUS"))
    settled.take<SlotKind>("slots", settled.wishes.kind, parse_slot_kind(said->variable, said->value), said->variable);
  if (own_policy) {
    check_bind(own->variable, own->value);
    settled.take<std::string>("bind", settled.wishes.bind, own->value, own->variable);
  }
  if (const auto said = find("MESHMARK_SLOTS"))
    settled.take<SlotKind>("slots", settled.wishes.kind, parse_slot_kind(said->variable, said->value), said->variable);
  return settled;
}

}  // namespace

Wishes wishes_of_environment(const std::vector<std::pair<std::string, std::string>>& environment) {
  return environment_settled(environment, false).done();
}

Wishes settle(const std::string& profile, const std::optional<std::string>& bind_option,
              const std::optional<std::string>& slots_option) {
  Settled settled;
  std::map<std::string, std::pair<Layer, std::string>> profiles;  // name → what it says, its file
  const std::string named = variable("MESHMARK_SITE_CONFIG"), site = named.empty() ? kSiteFile : named;
  const auto read = [&](const std::string& file, bool settings) {
    const Config config = read_config(file, settings);
    settled.take(config.site, file);
    for (const auto& [name, layer] : config.profiles) profiles[name] = {layer, file};
  };
  std::error_code hidden;  // a folder that this user may not look into is another's, such as HOME's after setpriv
  if (!named.empty() || std::filesystem::exists(site, hidden)) read(site, true);
  if (const std::string user = user_file(); !user.empty() && std::filesystem::exists(user, hidden)) read(user, false);
  if (!profile.empty()) {
    const auto found = profiles.find(profile);
    if (found == profiles.end()) {
      std::string known;
      for (const auto& [name, layer] : profiles) known += (known.empty() ? "" : ", ") + name;
      throw UsageError("--profile", "found " + quote(profile),
                       known.empty() ? "none: " + site + " has no [profile.NAME]" : known);
    }
    settled.take(found->second.first, "profile " + profile + " of " + found->second.second);
  }
  const bool overruled = bind_option && upper(*bind_option) != "USER";
  const Settled user = environment_settled(environment(), overruled);
  if (user.wishes.bind) settled.take<std::string>("bind", settled.wishes.bind, user.wishes.bind, user.who.at("bind"));
  if (user.wishes.kind) settled.take<SlotKind>("slots", settled.wishes.kind, user.wishes.kind, user.who.at("slots"));
  if (bind_option) {
    check_bind("--bind", *bind_option);
    settled.take<std::string>("bind", settled.wishes.bind, bind_option, "--bind");
  }
  if (slots_option)
    settled.take<SlotKind>("slots", settled.wishes.kind, parse_slot_kind("--slots", *slots_option), "--slots");
  return settled.done();
}

}  // namespace mm::place
