/// meshmark-load: synthesised programs, alone and co-running.
#include <cstdio>
#include <cstring>
#include <exception>

#include "entry.hpp"
#include "error.hpp"
#include "load/describe.hpp"
#include "load/program_run.hpp"
#include "load/scenario/run.hpp"

namespace {

struct Verb {
  const char* name;
  const char* help;
  int (*call)(int, char**);
};

constexpr Verb kVerbs[] = {
    {"kernels", "list the load kernels that programs are synthesised from", mm::load::kernels_verb},
    {"describe", "describe in JSON what is counted of load kernels", mm::load::describe_verb},
    {"program", "run a synthesised program", mm::load::program_verb},
    {"run", "run many programs at once and sample their threads", mm::load::run_verb},
};

int usage(std::FILE* to) {
  std::fprintf(to, "usage: meshmark-load VERB [options]\n\n");
  for (const Verb& v : kVerbs) std::fprintf(to, "  %-10s %s\n", v.name, v.help);
  std::fprintf(to, "\nexample: meshmark-load program traffic.json\n");
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
                      std::string("meshmark-load ") + v.name + " --help", 2);
    } catch (const mm::Absent& e) {
      return complain("absent", e.what(), e.enable, 77);
    } catch (const std::exception& e) {
      return complain("error", mm::in_words(e), "", 1);
    }
  }
  std::fprintf(stderr, "meshmark: error: verb: found %s, allowed are kernels, describe, program, run\n",
               mm::quote(argv[1]).c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  return mm::enter("meshmark", [&] { return answer(argc, argv); });
}
