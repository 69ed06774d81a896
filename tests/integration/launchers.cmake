# Jobs of `tutti bench` under launchers.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT TUTTI_SANITIZE)
  add_test(NAME launchers COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/launchers_test.py
    $<TARGET_FILE:tutti_tool> $<$<BOOL:${PMIX_FOUND}>:--pmix>)
  tutti_time_limit(60 launchers)
endif()
