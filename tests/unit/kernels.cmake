# Kernels are built for the requested architectures. For one element type, a test assembles them for the oldest and the
# newest architecture, too.
if(TUTTI_WITH_CUDA)
  foreach(architecture 80 120)
    foreach(protocol simple ll ll128)
      foreach(form kernels large_kernels)
        set(name ${form}_${protocol}_sm${architecture})
        add_test(NAME ${name}
          COMMAND ${CMAKE_CUDA_COMPILER} -arch=sm_${architecture} -std=c++20 --expt-relaxed-constexpr
                  -I${PROJECT_SOURCE_DIR}/core/include -I${PROJECT_SOURCE_DIR}/plugins/proto-${protocol}
                  -cubin -o ${CMAKE_CURRENT_BINARY_DIR}/${name}.cubin
                  ${PROJECT_BINARY_DIR}/plugins/proto-${protocol}/${form}_uint32.cu)
        set_tests_properties(${name} PROPERTIES LABELS cuda TIMEOUT 600)
      endforeach()
    endforeach()
  endforeach()
endif()
