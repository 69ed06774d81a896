# Several networks in one communicator: socket beside the mock network, and beside ucx where UCX was found.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME networks COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/networks_test.py
    $<TARGET_FILE:tutti_tool> $<TARGET_FILE:tutti-net-mock>)
  set_tests_properties(networks PROPERTIES ENVIRONMENT TUTTI_CHECK_PLUGINS=true)
  tutti_time_limit(60 networks)
  if(UCX_FOUND AND NOT TUTTI_SANITIZE)
    add_test(NAME networks_ucx COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/networks_test.py
      $<TARGET_FILE:tutti_tool> ucx)
    set_tests_properties(networks_ucx PROPERTIES LABELS ucx)
    tutti_time_limit(180 networks_ucx)
  endif()
endif()
# Threads of a rank move data between its GPU and networks, but mock takes one thread.
if(TUTTI_WITH_CUDA AND TUTTI_EXAMPLES)
  add_dependencies(extra_tests tutti-net-unix_stream)
  foreach(network unix_stream device device_flushed)
    add_test(NAME networks_cuda_${network}
      COMMAND ${CMAKE_COMMAND} -E env python3 ${CMAKE_CURRENT_LIST_DIR}/networks_test.py
        $<TARGET_FILE:tutti_tool> $<TARGET_FILE:tutti-net-${network}> cuda)
    set_tests_properties(networks_cuda_${network} PROPERTIES
      LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT TUTTI_CHECK_PLUGINS=true)
  endforeach()
endif()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/networks.yaml
"network: [socket, ${PROJECT_BINARY_DIR}/tests/conformance/tutti-net-mock.so]
rules:
  - match: {max_size: 1KiB}
    choose: {network: mock}
  - match: {collective: all_to_all}
    forbid: {network: socket}
")
add_dependencies(matrix_test tutti-net-mock)
add_test(NAME matrix_networks COMMAND matrix_test --seed 1 --ranks 2,4 --max-count 4097)
set_tests_properties(matrix_networks PROPERTIES
  ENVIRONMENT "TUTTI_CONFIG=${CMAKE_CURRENT_BINARY_DIR}/networks.yaml;TUTTI_SET=check.plugins=true")
tutti_time_limit(300 matrix_networks)
add_test(NAME matrix_failover COMMAND matrix_test --seed 1 --ranks 2,4 --max-count 4097)
set_tests_properties(matrix_failover PROPERTIES
  ENVIRONMENT
  "TUTTI_CONFIG=${CMAKE_CURRENT_BINARY_DIR}/networks.yaml;TUTTI_SET=check.plugins=true;TUTTI_NET_FAILOVER=true")
tutti_time_limit(300 matrix_failover)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/racks.yaml
"network: [socket, ${PROJECT_BINARY_DIR}/tests/conformance/tutti-net-mock.so]
net:
  racks: [left=host0 host1, right=host2 host3]
  inside_rack: mock
")
add_test(NAME matrix_racks COMMAND matrix_test --seed 1 --hosts 4 --ranks 4 --max-count 4097)
set_tests_properties(matrix_racks PROPERTIES
  ENVIRONMENT "TUTTI_CONFIG=${CMAKE_CURRENT_BINARY_DIR}/racks.yaml")
tutti_time_limit(300 matrix_racks)
