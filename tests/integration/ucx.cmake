# Tutti over the network ucx, where UCX was found: over TCP and over shared memory of one host. UCX is not compiled with
# sanitizers; net_ucx_test runs with AddressSanitizer. One build suffices.
if(UCX_FOUND AND NOT TUTTI_SANITIZE AND NOT TUTTI_WITH_CUDA)
  foreach(transport tcp sm)
    add_test(NAME matrix_ucx_${transport} COMMAND matrix_test --seed 1 --ranks 2,4 --max-count 4097)
    set_tests_properties(matrix_ucx_${transport} PROPERTIES
      ENVIRONMENT "TUTTI_SET=network=ucx$<SEMICOLON>settings.net.ucx.transports=[${transport}]")
    tutti_time_limit(300 matrix_ucx_${transport})
  endforeach()
endif()
