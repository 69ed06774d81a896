# Kernels of protocol plugins. Works inside Tutti's tree and, through find_package(Tutti), outside it. Outside, the
# project names the language CUDA, and CMAKE_CUDA_ARCHITECTURES holds the GPUs (90 for Hopper).
#
# tutti_cuda_kernels(<target> <template>...): compiles each <template> (a .cu.in) once for each element type into the
# target. A template sees @TYPE@, the type's name, @ELEMENT@, its C++ type, and @COPIES@, 1 for types as which data of
# other types is copied.
# tutti_cuda_sources(<target> <source>...): compiles device code that is the same for all types.
function(tutti_cuda_sources target)
  if(DEFINED TUTTI_WITH_CUDA AND NOT TUTTI_WITH_CUDA)
    return()
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "CUDA" IN_LIST languages)
    message(FATAL_ERROR "kernels of ${target}: write project(... LANGUAGES C CXX CUDA)")
  endif()
  find_package(CUDAToolkit REQUIRED)
  set(kernels ${target}-kernels)
  add_library(${kernels} OBJECT ${ARGN})
  set_target_properties(${kernels} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${kernels} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
    $<TARGET_PROPERTY:Tutti::sdk,INTERFACE_INCLUDE_DIRECTORIES>)
  if(TARGET tutti_options) # Tutti's own tree
    target_compile_options(${kernels} PRIVATE
      --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Werror -Werror=all-warnings)
  else()
    target_compile_options(${kernels} PRIVATE --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra -std=c++20)
  endif()
  target_compile_definitions(${target} PRIVATE TUTTI_HAS_CUDA)
  target_link_libraries(${target} PRIVATE ${kernels} CUDA::cudart_static)
endfunction()

function(tutti_cuda_kernels target)
  foreach(TYPE int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16 float8_e4m3 float8_e5m2)
    set(COPIES 0)
    if(TYPE MATCHES "^uint(8|32|64)$")
      set(COPIES 1)
    endif()
    set(ELEMENT ${TYPE}_t)
    if(TYPE STREQUAL "float32")
      set(ELEMENT float)
    elseif(TYPE STREQUAL "float64")
      set(ELEMENT double)
    elseif(TYPE MATCHES "float")
      set(ELEMENT tutti::device::${TYPE})
    endif()
    foreach(template ${ARGN})
      string(REGEX REPLACE "\\.cu\\.in$" "" name ${template})
      set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}_${TYPE}.cu)
      configure_file(${template} ${source} @ONLY)
      list(APPEND sources ${source})
    endforeach()
  endforeach()
  tutti_cuda_sources(${target} ${sources})
endfunction()
