# The processors of Tutti's threads.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME affinity COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/affinity_test.py
    $<TARGET_FILE:tutti_tool>)
  set_tests_properties(affinity PROPERTIES SKIP_RETURN_CODE 77)
  tutti_time_limit(60 affinity)
endif()
