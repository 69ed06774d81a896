# Communicators that run plan files.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND TARGET tutti-algo-ring AND TARGET tutti-algo-direct)
  add_test(NAME plan_files
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/plan_files_test.py $<TARGET_FILE:tutti_tool>)
  tutti_time_limit(120 plan_files)
endif()
