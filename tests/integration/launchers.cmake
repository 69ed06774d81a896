# Jobs of `tutti bench` under launchers, by ssh, and by the files of examples/deploy.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT TUTTI_SANITIZE)
  add_executable(launched ${CMAKE_CURRENT_LIST_DIR}/launched.cpp)
  target_link_libraries(launched PRIVATE tutti tutti_options)
  target_include_directories(launched PRIVATE ${PROJECT_SOURCE_DIR}/core/include)
  set_target_properties(launched PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME launchers COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/launchers_test.py
    $<TARGET_FILE:tutti_tool> $<TARGET_FILE:launched> $<$<BOOL:${PMIX_FOUND}>:--pmix>)
  if(PMIX_FOUND)
    set_tests_properties(launchers PROPERTIES LABELS mpi)
    add_dependencies(extra_tests launched)
  endif()
  tutti_time_limit(60 launchers)
  # The files of examples/deploy.
  add_test(NAME deploy COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/deploy_test.py
    $<TARGET_FILE:tutti_tool> ${PROJECT_SOURCE_DIR} $<$<BOOL:${PMIX_FOUND}>:--pmix>)
  tutti_time_limit(60 deploy)
  if(PMIX_FOUND)
    set_tests_properties(deploy PROPERTIES LABELS mpi)
  endif()
  add_test(NAME ssh COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/ssh_test.py $<TARGET_FILE:tutti_tool>)
  tutti_time_limit(100 ssh)
endif()
