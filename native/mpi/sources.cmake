# Writes mpi/sources.json: the sources and options of which `meshmark mpi build` compiles the program for an MPI library
# where that is installed. Relative paths begin at the folder of the file. The wheel contains that folder, with copies of
# the sources, and of the headers and the library that they need; a clone has the list only.
function(mm_json_list result)
  list(TRANSFORM ARGN REPLACE "(.+)" "\"\\1\"")
  list(JOIN ARGN ", " text)
  set(${result} "[${text}]" PARENT_SCOPE)
endfunction()

function(mm_mpi_sources)
  set(native ${PROJECT_SOURCE_DIR}/native)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${native}/base/*.cpp ${native}/program/*.cpp ${native}/sys/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/base/libraries/")  # only other programs call BLAS
  list(APPEND sources ${mm_mpi_shared} ${mm_mpi_instruments})
  if(MM_GLIBC)
    list(APPEND sources ${native}/portable/no_udev.cpp)
  endif()
  list(TRANSFORM sources REPLACE "^${native}/" "")

  set(provenance ${PROJECT_BINARY_DIR}/generated/provenance.cpp)

  # Headers of other projects: a folder for the compiler, and what the wheel copies from it.
  find_path(mm_cli11_headers CLI/CLI.hpp HINTS ${CLI11_DIR}/../../../include REQUIRED)
  find_path(mm_json_headers nlohmann/json.hpp HINTS ${nlohmann_json_DIR}/../../../include REQUIRED)
  find_path(mm_hwloc_headers hwloc.h HINTS ${HWLOC_INCLUDE_DIRS} REQUIRED)

  if(SKBUILD)
    set(folder ${mm_prefix}mpi)
    install(DIRECTORY ${native}/base ${native}/mpi ${native}/program ${native}/sys DESTINATION ${folder}/native
            FILES_MATCHING PATTERN "*.hpp")
    foreach(source ${sources})
      get_filename_component(parent ${source} DIRECTORY)
      install(FILES ${native}/${source} DESTINATION ${folder}/native/${parent})
    endforeach()
    install(FILES ${provenance} ${PROJECT_BINARY_DIR}/mpi/sources.json DESTINATION ${folder})
    install(DIRECTORY ${mm_cli11_headers}/CLI ${mm_json_headers}/nlohmann ${mm_hwloc_headers}/hwloc
            DESTINATION ${folder}/include FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
    install(FILES ${mm_hwloc_headers}/hwloc.h DESTINATION ${folder}/include)
    set(tree native)
    set(include_folders include)
    set(provenance provenance.cpp)
  else()
    set(tree ${native})
    set(include_folders ${mm_cli11_headers} ${mm_json_headers} ${mm_hwloc_headers})
    list(REMOVE_DUPLICATES include_folders)
    list(REMOVE_ITEM include_folders ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  endif()
  if(SKBUILD AND MM_GLIBC)
    install(FILES ${mm_static_hwloc} DESTINATION ${folder}/lib)
    set(libraries lib/libhwloc.a)
  else()
    set(libraries ${HWLOC_LINK_LIBRARIES})
  endif()

  mm_json_list(sources ${sources})
  mm_json_list(include_folders ${include_folders})
  mm_json_list(libraries ${libraries})
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/mpi/sources.json CONTENT
       "{\"tree\": \"${tree}\", \"provenance\": \"${provenance}\", \"include\": ${include_folders},
   \"libraries\": ${libraries}, \"sources\": ${sources}}\n")
endfunction()
mm_mpi_sources()
