# Collectives over net-socket between network namespaces; skipped where no namespaces can be made.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT TUTTI_SANITIZE)
  add_test(NAME hosts COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/hosts_test.py
    $<TARGET_FILE:tutti_tool> $<TARGET_FILE:matrix_test>)
  set_tests_properties(hosts PROPERTIES SKIP_RETURN_CODE 77)
  tutti_time_limit(400 hosts)
endif()
