# The cost of running plans on GPUs. Only with TUTTI_CUDA=ON (preset cuda): CMAKE_CUDA_ARCHITECTURES chooses the chips.
if(TUTTI_CUDA STREQUAL "ON")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  enable_language(CUDA)
  add_executable(gpu_plan gpu_plan/gpu_plan.cu gpu_plan/plans.cpp)
  set_target_properties(gpu_plan PROPERTIES CUDA_STANDARD 20 CUDA_RUNTIME_LIBRARY Static
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  target_include_directories(gpu_plan PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(gpu_plan PRIVATE tutti_core_static CUDA::cudart_static)
endif()
