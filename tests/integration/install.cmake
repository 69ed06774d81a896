# An installed Tutti is enough for plugins and programs. (Sanitizers would have to be linked into the examples too.)
if(NOT TUTTI_SANITIZE)
  add_test(NAME install COMMAND ${CMAKE_CURRENT_LIST_DIR}/install_test.sh ${PROJECT_BINARY_DIR}
    $<$<BOOL:${TUTTI_WITH_CUDA}>:${PROJECT_SOURCE_DIR}/plugins/proto-ll>
    $<$<BOOL:${TUTTI_WITH_CUDA}>:${CMAKE_CUDA_COMPILER}>)
  set_tests_properties(install PROPERTIES TIMEOUT 600 LABELS "slow;cuda")
endif()
