# Copyright 2026, the Meshmark authors
#
# SPDX-License-Identifier: BSD-3-Clause

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class Meshmark(PythonPackage):
    """Meshmark measures the hardware of a Linux machine: the latency and bandwidth of every cache and NUMA node,
    core-to-core latency, latency under load, arithmetic peak, I/O and MPI communication.
    """

    # PLACEHOLDER: the repository is not published. Until then, build a clone: spack dev-build meshmark@0.1.0
    homepage = "https://example.org/meshmark"
    git = "https://example.org/meshmark.git"

    license("BSD-3-Clause")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("mpi", default=True, description="Build the MPI instruments")
    variant("fleet", default=False, description="Survey the nodes of clusters")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("py-scikit-build-core", type="build")
    depends_on("py-packaging", type="build")
    depends_on("py-pathspec", type="build")

    depends_on("cli11", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("tomlplusplus", type="build")
    depends_on("hwloc@2:")
    depends_on("zlib-api")
    depends_on("mpi", when="+mpi")

    # These are loaded while Meshmark runs, and measured.
    depends_on("blas", type="run")
    depends_on("lapack", type="run")

    with default_args(type=("build", "run")):
        depends_on("python@3.11:")
        depends_on("py-typer@0.12:")
        depends_on("py-rich@13:")
        depends_on("py-pydantic@2.6:")
        depends_on("duckdb@1.5: +python")
        depends_on("py-h11@0.14:")
        depends_on("py-httpx@0.28:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-numpy@1.26:")
        depends_on("py-scipy@1.12:")
        depends_on("py-altair@5.3:")
        depends_on("py-starlette@0.37:")
        depends_on("py-prometheus-client@0.20:")
        depends_on("py-textual@1:")
        depends_on("py-uvicorn@0.29:")
        # Not looked up in Spack's packages.
        depends_on("py-arro3-core@0.9:")
        depends_on("py-backports-zstd@1:")
        depends_on("py-quickjs-ng@0.17:")
        depends_on("py-resvg-py@0.5:")
        depends_on("py-clustershell@1.9:", when="+fleet")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_programs(self):
        """Measure a small footprint for a second."""
        meshmark = Executable(self.prefix.bin.meshmark)
        meshmark("measure", "latency", "--footprint", "16KiB", "--budget", "1s", "--no-store")
