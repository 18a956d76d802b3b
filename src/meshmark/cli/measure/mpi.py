"""`meshmark mpi build`: compile the program of MPI ranks for the MPI library of this site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshmark.cli.console import say

app = typer.Typer(help="Build programs for the MPI libraries of this site.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Build programs for the MPI libraries of this site."""


@app.command("build")
def build(
    mpi: Annotated[str, typer.Option("--mpi", help="expected kind of library: any, openmpi, mpich or mpi")] = "any",
    compiler: Annotated[
        str,
        typer.Option(
            "--compiler", help="compiler wrapper of the library [mpicxx, mpic++, mpiicpx or CC]", show_default=False
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="folder for the program, for MESHMARK_COMM [$XDG_DATA_HOME/meshmark/mpi]",
            show_default=False,
        ),
    ] = None,
    untried: Annotated[bool, typer.Option("--untried", help="start no ranks, as on a login node")] = False,
) -> None:
    """Compile the program of MPI ranks for the MPI library of this site, and start two ranks of it.

    The compiler is the wrapper of the library, and needs C++20. Afterwards, `meshmark measure halo` and other MPI
    instruments use the program together with the launcher of that library.

    example: meshmark mpi build --compiler /opt/openmpi/bin/mpicxx
    """
    from meshmark.measure.mpi_build import build_program, find_wrapper

    print(build_program(find_wrapper(mpi, compiler), mpi, output, is_tried=not untried, notify=say))
