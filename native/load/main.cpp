/// meshmark-load: synthetic programs, alone and co-running.
#include "load/describe.hpp"
#include "load/program_run.hpp"
#include "load/scenario/run.hpp"
#include "program/verbs.hpp"

namespace {

constexpr mm::Verb kVerbs[] = {
    {"kernels", "list the load kernels of synthetic programs", mm::load::kernels_verb},
    {"describe", "describe the counts of load kernels in JSON", mm::load::describe_verb},
    {"program", "run a synthetic program", mm::load::program_verb},
    {"run", "run many programs at once and sample their threads", mm::load::run_verb},
};

}  // namespace

int main(int argc, char** argv) {
  return mm::run_verb({.name = "meshmark-load",
                       .user = "meshmark-load",
                       .summary = "Run synthetic programs, alone or many at once.",
                       .example = "program traffic.json",
                       .verbs = kVerbs},
                      argc, argv);
}
