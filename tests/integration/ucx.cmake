# Tutti over the network ucx, where UCX was found: over TCP and over shared memory of one host, and between
# network namespaces. UCX is not compiled with sanitizers; net_ucx_test runs with AddressSanitizer.
if(UCX_FOUND AND NOT TUTTI_SANITIZE)
  add_dependencies(extra_tests matrix_test)
  foreach(transport tcp sm)
    add_test(NAME matrix_ucx_${transport} COMMAND matrix_test --seed 1 --ranks 2,4 --max-count 4097)
    set(settings "network=ucx$<SEMICOLON>settings.net.ucx.transports=[${transport}]$<SEMICOLON>check.plugins=true")
    # Alone: beside the emulated machine, UCX's connect slept for 162 ms in one of about 20 runs (NET-9), and UCX failed
    # to connect two workers of a process over shared memory in another.
    set_tests_properties(matrix_ucx_${transport} PROPERTIES LABELS ucx ENVIRONMENT "TUTTI_SET=${settings}"
                         RUN_SERIAL TRUE)
    tutti_time_limit(300 matrix_ucx_${transport})
  endforeach()
  find_package(Python3 COMPONENTS Interpreter)
  if(Python3_FOUND) # skipped where no namespaces can be made
    add_test(NAME ucx_hosts COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/ucx_hosts_test.py
      $<TARGET_FILE:tutti_tool> $<TARGET_FILE:matrix_test>)
    set_tests_properties(ucx_hosts PROPERTIES LABELS ucx SKIP_RETURN_CODE 77)
    tutti_time_limit(400 ucx_hosts)
  endif()
endif()
