# Writes OUTPUT from TEMPLATE: version and commit, compiler, flags. configure_file() leaves a file
# alone whose text would be the same.
set(MM_VERSION "${VERSION}")
find_program(GIT git)
if(GIT AND EXISTS "${SOURCE}/.git")
  execute_process(
    COMMAND ${GIT} -C ${SOURCE} describe --always --exclude * --dirty=.dirty --abbrev=8
    OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET
    RESULT_VARIABLE failed)
  if(NOT failed AND commit)
    string(APPEND MM_VERSION "+g${commit}")
  endif()
endif()
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
