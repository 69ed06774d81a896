# The commands, outputs, settings and code that the documentation quotes. Other tests run the tool with sanitizers.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT TUTTI_SANITIZE AND TARGET pugixml::pugixml AND TARGET tutti-algo-chain)
  add_test(NAME docs COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/docs_test.py
    $<TARGET_FILE:tutti_tool> ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  tutti_time_limit(120 docs)
endif()
