# `tutti tune` and the tuner that follows its table, from end to end.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME tune COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/tune_test.py $<TARGET_FILE:tutti_tool>)
  tutti_time_limit(60 tune)
endif()
