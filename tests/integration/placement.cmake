# Host ranks that stand for the GPUs of a topology file; skipped where no namespaces can be made.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME placement
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/placement_test.py $<TARGET_FILE:tutti_tool>)
  set_tests_properties(placement PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT TUTTI_CHECK_PLUGINS=true)
  tutti_time_limit(60 placement)
endif()
