# The algorithm `hier` on several hosts.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME hier COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/hier_test.py $<TARGET_FILE:tutti_tool>)
  tutti_time_limit(200 hier)
endif()
