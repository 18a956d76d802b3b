/// meshmark-load: synthesised programs, alone and co-running.
#include "load/describe.hpp"
#include "load/program_run.hpp"
#include "load/scenario/run.hpp"
#include "program/verbs.hpp"

namespace {

constexpr mm::Verb kVerbs[] = {
    {"kernels", "list the load kernels that programs are synthesised from", mm::load::kernels_verb},
    {"describe", "describe in JSON what is counted of load kernels", mm::load::describe_verb},
    {"program", "run a synthesised program", mm::load::program_verb},
    {"run", "run many programs at once and sample their threads", mm::load::run_verb},
};

}  // namespace

int main(int argc, char** argv) {
  return mm::run_verb({"meshmark-load", "meshmark-load", "program traffic.json", kVerbs}, argc, argv);
}
