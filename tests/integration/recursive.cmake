# Scratch memory and messages of several chunks, on the host.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND TARGET tutti-algo-recursive)
  add_test(NAME recursive COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/recursive_test.py
           $<TARGET_FILE:tutti_tool> ${PROJECT_BINARY_DIR}/examples
           $<$<BOOL:${TUTTI_SANITIZE}>:--few> COMMAND_EXPAND_LISTS)
  tutti_time_limit(300 recursive)
endif()
