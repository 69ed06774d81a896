# `tutti config` shows and checks configurations; ranks refuse wrong names.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME tool_config COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/config_test.py
    $<TARGET_FILE:tutti_tool> ${PROJECT_BINARY_DIR}/tests/zoo ${PROJECT_SOURCE_DIR}/configs)
  tutti_time_limit(40 tool_config)
endif()
