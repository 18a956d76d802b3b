/// meshmark-probe-apps: the instruments that imitate applications. meshmark-probe executes it.
#include "program/instruments.hpp"

int main(int argc, char** argv) {
  return mm::answer(argc, argv,
                    {.name = "meshmark-probe",
                     .summary = "Measures one quantity of this machine and prints JSON Lines.\n"
                                "example: meshmark-probe fft --threads 1,all"});
}
