# The `tutti` command from end to end.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME tool COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/tool_test.py $<TARGET_FILE:tutti_tool>)
  tutti_time_limit(60 tool)
endif()
