# libnccl.so.2 over Tutti, as far as it can be tested without a GPU.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET tutti_nccl)
  add_executable(nccl_arguments ${CMAKE_CURRENT_LIST_DIR}/nccl_arguments.c)
  target_include_directories(nccl_arguments PRIVATE ${PROJECT_SOURCE_DIR}/compat/nccl)
  target_link_libraries(nccl_arguments PRIVATE tutti_options tutti_nccl CUDA::cudart_static)
  set_target_properties(nccl_arguments PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME nccl_arguments COMMAND nccl_arguments)
  add_test(NAME nccl_one_rank COMMAND nccl_arguments one_rank)
  set_tests_properties(nccl_arguments nccl_one_rank PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77)
  if(Python3_FOUND)
    add_test(NAME nccl_symbols COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/nccl_symbols_test.py
             $<TARGET_FILE:tutti_nccl> ${PROJECT_SOURCE_DIR}/compat/nccl/symbols.txt ${CMAKE_NM})
    add_test(NAME nccl_environment COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/nccl_environment_test.py
             $<TARGET_FILE:nccl_arguments>)
    set_tests_properties(nccl_symbols nccl_environment PROPERTIES TIMEOUT 60)
  endif()
endif()
# How ranks meet to make one communicator from another needs no GPU, and no CUDA.
tutti_test(nccl_meeting_test
  SOURCES nccl_meeting_test.cpp ../unit/bootstrap_group.cpp ${PROJECT_SOURCE_DIR}/compat/nccl/meeting.cpp
  LABELS concurrent)
target_include_directories(nccl_meeting_test PRIVATE ${PROJECT_SOURCE_DIR}/compat)
