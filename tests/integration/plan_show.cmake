# Pictures of plans, and plans before and after passes, through the tool.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND TARGET tutti-algo-recursive)
  add_test(NAME plan_show COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/plan_show_test.py
           $<TARGET_FILE:tutti_tool> ${PROJECT_BINARY_DIR}/examples)
  tutti_time_limit(60 plan_show)
endif()
