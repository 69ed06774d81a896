# add_nccl_mock(<type> <name> <symbol> [<definition>...]): libnccl-<type>-<name>.so from mock.cpp of the calling folder,
# a plugin of NCCL that exports its table as <symbol>. The targets of a type are in the global property
# TUTTI_NCCL_MOCKS_<type>.
include_guard(GLOBAL)
function(add_nccl_mock type name symbol)
  set(target nccl_${type}_${name})
  add_library(${target} MODULE ${CMAKE_CURRENT_SOURCE_DIR}/mock.cpp)
  target_compile_definitions(${target} PRIVATE MOCK_NAME="${name}" MOCK_SYMBOL=${symbol} ${ARGN})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_link_libraries(${target} PRIVATE tutti_options)
  tutti_compile_fast(${target})
  set_target_properties(${target} PROPERTIES PREFIX lib OUTPUT_NAME nccl-${type}-${name} CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/nccl_${type})
  set_property(GLOBAL APPEND PROPERTY TUTTI_NCCL_MOCKS_${type} ${target})
endfunction()
