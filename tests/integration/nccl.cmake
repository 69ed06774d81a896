# libnccl.so.2 over Tutti, as far as it can be tested without a GPU.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET tutti_nccl)
  add_executable(nccl_arguments ${CMAKE_CURRENT_LIST_DIR}/nccl_arguments.c)
  target_include_directories(nccl_arguments PRIVATE ${PROJECT_SOURCE_DIR}/compat/nccl)
  target_link_libraries(nccl_arguments PRIVATE tutti_options tutti_nccl CUDA::cudart_static)
  set_target_properties(nccl_arguments PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME nccl_arguments COMMAND nccl_arguments)
  add_test(NAME nccl_one_rank COMMAND nccl_arguments one_rank)
  add_dependencies(extra_tests nccl_arguments)
  set_tests_properties(nccl_arguments nccl_one_rank PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
  tutti_time_limit(60 nccl_arguments nccl_one_rank)
  if(Python3_FOUND)
    add_test(NAME nccl_symbols COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/nccl_symbols_test.py
             $<TARGET_FILE:tutti_nccl> ${PROJECT_SOURCE_DIR}/compat/nccl/symbols.txt ${CMAKE_NM}
             --may-need ${TUTTI_OUTSIDE})
    add_test(NAME nccl_environment COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/nccl_environment_test.py
             $<TARGET_FILE:nccl_arguments>)
    set_tests_properties(nccl_symbols nccl_environment PROPERTIES LABELS cuda)
    tutti_time_limit(60 nccl_symbols nccl_environment)
  endif()
endif()
# Programs of the kind that applications are, for machines with GPUs: scripts/clients_check.sh runs them.
if(TARGET tutti_nccl)
  set(clients ${PROJECT_SOURCE_DIR}/tests/clients)
  add_executable(nccl_codes ${clients}/nccl_codes.c)
  target_link_libraries(nccl_codes PRIVATE tutti_nccl)
  add_executable(nccl_family ${clients}/nccl_family.cpp)
  target_link_libraries(nccl_family PRIVATE tutti_nccl Threads::Threads)
  add_executable(nccl_like ${clients}/nccl_like.cpp) # opens the library that it is told
  target_link_libraries(nccl_like PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  add_executable(nccl_api_cost ${clients}/api_cost.cpp)
  target_link_libraries(nccl_api_cost PRIVATE tutti_core_static tutti_nccl)
  target_compile_definitions(nccl_api_cost PRIVATE TUTTI_BINARY_DIR="${PROJECT_BINARY_DIR}")
  foreach(client nccl_codes nccl_family nccl_like nccl_api_cost)
    target_include_directories(${client} PRIVATE ${PROJECT_SOURCE_DIR}/compat/nccl)
    target_link_libraries(${client} PRIVATE tutti_options CUDA::cudart_static)
    set_target_properties(${client} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  endforeach()
  add_dependencies(extra_tests nccl_codes nccl_family nccl_like nccl_api_cost)
  add_test(NAME nccl_codes COMMAND nccl_codes)
  add_test(NAME nccl_family COMMAND nccl_family)
  add_test(NAME nccl_like COMMAND nccl_like --library $<TARGET_FILE:tutti_nccl> -p 2 --share -e 65536 -n 20)
  set_tests_properties(nccl_codes nccl_family nccl_like PROPERTIES LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
# The meeting of ranks for a new communicator needs no GPU, and no CUDA.
tutti_test(nccl_meeting_test
  SOURCES nccl_meeting_test.cpp ../unit/bootstrap_group.cpp ${PROJECT_SOURCE_DIR}/compat/nccl/meeting.cpp
  LABELS concurrent)
target_include_directories(nccl_meeting_test PRIVATE ${PROJECT_SOURCE_DIR}/compat)
# Neither do reductions, variables and the checks of messages: the names of CUDA's types suffice.
set(parts errors meeting operation reductions variables)
list(TRANSFORM parts REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/compat/nccl/\\1.cpp")
tutti_test(nccl_parts_test SOURCES nccl_parts_test.cpp ${parts})
target_include_directories(nccl_parts_test BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/cuda_types)
target_include_directories(nccl_parts_test PRIVATE ${PROJECT_SOURCE_DIR}/compat)
target_compile_options(nccl_parts_test PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-missing-attributes>) # of aliases
