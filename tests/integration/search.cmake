# `tutti search` from end to end.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND TARGET pugixml::pugixml)
  add_test(NAME search COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/search_test.py
    $<TARGET_FILE:tutti_tool> ${PROJECT_SOURCE_DIR})
  tutti_time_limit(30 search)
endif()
