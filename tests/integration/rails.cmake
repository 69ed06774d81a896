# Channels over several network devices; skipped where no namespaces can be made.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME rails COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/rails_test.py $<TARGET_FILE:tutti_tool>)
  set_tests_properties(rails PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT TUTTI_CHECK_PLUGINS=true)
  add_test(NAME rails_remains
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/rails_test.py $<TARGET_FILE:tutti_tool> --outside)
  set_tests_properties(rails_remains PROPERTIES SKIP_RETURN_CODE 77)
  tutti_time_limit(60 rails rails_remains)
endif()
