# Jobs of `tutti bench` under launchers.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT TUTTI_SANITIZE)
  add_executable(launched ${CMAKE_CURRENT_LIST_DIR}/launched.cpp)
  target_link_libraries(launched PRIVATE tutti tutti_options)
  target_include_directories(launched PRIVATE ${PROJECT_SOURCE_DIR}/core/include)
  set_target_properties(launched PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME launchers COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/launchers_test.py
    $<TARGET_FILE:tutti_tool> $<TARGET_FILE:launched> $<$<BOOL:${PMIX_FOUND}>:--pmix>)
  tutti_time_limit(60 launchers)
endif()
