/// meshmark-probe: runs one instrument on this machine and writes JSON Lines, or a survey for people.
#include <string_view>

#include "program/instruments.hpp"
#include "survey/survey.hpp"

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "survey") return mm::survey::run(argc - 1, argv + 1);
  return mm::answer(argc, argv,
                    {.name = "meshmark-probe",
                     .summary = "Measures one quantity of this machine and prints JSON Lines. meshmark-probe survey "
                                "prints a table of the main quantities instead.\n"
                                "example: meshmark-probe latency --footprint 16KiB..64MiB --cpus 0"});
}
