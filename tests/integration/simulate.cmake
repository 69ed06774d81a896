# `tutti simulate` from end to end.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME simulate COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/simulate_test.py
    $<TARGET_FILE:tutti_tool> ${PROJECT_SOURCE_DIR})
  tutti_time_limit(60 simulate)
endif()
