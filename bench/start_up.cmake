# start_up: communicators with many ranks. Their start takes time, memory and descriptors.
add_executable(start_up start_up.cpp)
target_link_libraries(start_up PRIVATE tutti tutti_options CLI11::CLI11 fmt::fmt)
if(TUTTI_TESTS)
  add_test(NAME start_up COMMAND start_up --ranks 6 64 --processes 3 --hosts 2)
  tutti_time_limit(60 start_up)
endif()
