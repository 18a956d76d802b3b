"""Writes a simulation of water for GROMACS, and checks the result of a run.

gromacs.py make         writes water.top and water.mdp
gromacs.py check LOG
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

STEPS, STEP_PS = 300, 0.002
# Potential energy of a molecule in kJ/mol, and the relative tolerance of a run. The model is designed to have the
# potential energy of water, -41.5. The system is too small, and the run too short, for more than two digits.
POTENTIAL, TOLERANCE = -41.6, 0.02
DRIFT = 0.006  # limit in kJ/mol/ps per atom: a step of 4 fs has a larger drift, a step of 2 fs half of the limit

TOPOLOGY = """\
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spc.itp"

[ system ]
water

[ molecules ]
"""

# There is no thermostat, so that the total energy is conserved.
PARAMETERS = f"""\
integrator = md
dt = {STEP_PS}
nsteps = {STEPS}
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
gen-vel = yes
gen-temp = 300
gen-seed = 7
nstcalcenergy = 10
nstlog = {STEPS}
nstenergy = {STEPS}
"""


def make() -> None:
    """Write the topology and the parameters of the simulation to the current folder."""
    Path("water.top").write_text(TOPOLOGY, encoding="ascii")
    Path("water.mdp").write_text(PARAMETERS, encoding="ascii")


def check(log: str) -> str:
    """Return why the energies of a log are wrong; "" if they are right."""
    atoms = re.search(r"There are: (\d+) Atoms", log)
    drift = re.search(r"Conserved energy drift: (\S+) kJ/mol/ps per atom", log)
    averages = log.partition("A V E R A G E S")[2]
    table = re.search(r"^(.*\bPotential\b.*)\n(.*)$", averages, re.M)
    if atoms is None or drift is None or table is None:
        return "the log has no energies"
    column = table[1].index("Potential") // 15  # all columns have 15 characters
    potential = float(table[2][15 * column : 15 * column + 15]) / (int(atoms[1]) / 3)
    if not abs(float(drift[1])) < DRIFT:
        return f"the energy drifts by {drift[1]} kJ/mol/ps per atom; allowed: {DRIFT}"
    if not abs(potential / POTENTIAL - 1) < TOLERANCE:
        return f"the potential energy of a molecule is {potential:.2f} kJ/mol; expected {POTENTIAL}"
    return ""


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make()
    elif why := check(Path(sys.argv[2]).read_text(encoding="utf-8", errors="replace")):
        sys.exit(why)
