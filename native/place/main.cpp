/// meshmark-place: where programs and their pages go, and proof that they stayed there.
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>

#include "bind.hpp"
#include "describe.hpp"
#include "entry.hpp"
#include "error.hpp"
#include "ledger.hpp"
#include "observe.hpp"
#include "policy.hpp"
#include "run.hpp"
#include "syntax.hpp"

namespace {

struct Verb {
  const char* name;
  const char* help;
  int (*call)(int, char**);
};

constexpr Verb kVerbs[] = {
    {"run", "place a command, and prove that it stayed", mm::place::run_verb},
    {"plan", "what a policy would do on any machine", mm::place::plan_verb},
    {"slots", "who holds which CPUs of this node", mm::place::slots_verb},
    {"placed", "where a running program and its pages are", mm::place::placed_verb},
    {"migrate", "move a running program's pages", mm::place::migrate_verb},
    {"translate", "one layout in the words of another launcher", mm::place::translate_verb},
    {"describe", "policies, page sizes and metrics, for programs", mm::place::describe_verb},
};

int usage(std::FILE* to) {
  std::fprintf(to, "usage: meshmark-place VERB [options]\n\n");
  for (const Verb& v : kVerbs) std::fprintf(to, "  %-10s %s\n", v.name, v.help);
  std::fprintf(to, "\nexample: meshmark-place run --bind balance -n 2 --verify -- ./a.out\n");
  return to == stdout ? 0 : 2;
}

int complain(const char* word, const std::string& message, const std::string& hint, int status) {
  std::fprintf(stderr, "meshmark: %s: %s\n", word, message.c_str());
  if (!hint.empty()) std::fprintf(stderr, "hint: %s\n", hint.c_str());
  return status;
}

int answer(int argc, char** argv) {
  if (argc < 2) return usage(stderr);
  if (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) return usage(stdout);
  for (const Verb& v : kVerbs) {
    if (std::strcmp(argv[1], v.name) != 0) continue;
    try {
      return v.call(argc - 1, argv + 1);
    } catch (const mm::UsageError& e) {
      return complain("error", e.field + ": " + e.what() + (e.allowed.empty() ? "" : "; allowed: " + e.allowed),
                      std::string("meshmark ") + (std::strcmp(v.name, "plan") == 0 ? "place" : v.name) + " --help", 2);
    } catch (const mm::Absent& e) {
      return complain("absent", e.what(), e.enable, 77);
    } catch (const mm::place::Busy& e) {
      return complain("error", e.what(), "--wait waits for it; meshmark slots shows who holds what", 1);
    } catch (const std::exception& e) {
      return complain("error", mm::in_words(e), "", 1);
    }
  }
  std::fprintf(stderr,
               "meshmark: error: verb: found %s, allowed are run, plan, slots, placed, migrate, translate, describe\n",
               mm::quote(argv[1]).c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  return mm::enter("meshmark", [&] { return answer(argc, argv); });
}
