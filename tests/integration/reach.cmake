# Many ranks on the host: every algorithm on up to 33. By hand: reach_test.py --full.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME reach COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/reach_test.py $<TARGET_FILE:tutti_tool>)
  tutti_time_limit(120 reach)
endif()
