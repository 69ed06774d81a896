# `tutti topo` from end to end.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND TARGET pugixml::pugixml)
  add_test(NAME topo COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/topo_test.py $<TARGET_FILE:tutti_tool>)
  tutti_time_limit(30 topo)
endif()
