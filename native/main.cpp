/// meshmark-probe: runs one instrument on this machine and writes JSON Lines.
#include "program/instruments.hpp"

int main(int argc, char** argv) {
  return mm::answer(argc, argv,
                    {.name = "meshmark-probe",
                     .summary = "Measures one quantity of this machine and prints JSON Lines.\n"
                                "example: meshmark-probe latency --footprint 16KiB..64MiB --cpus 0"});
}
