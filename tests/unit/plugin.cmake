# The zoo: one defective plugin per row of ../zoo/zoo.c, built without tutti_add_plugin()'s own checks.
set(zoo_defects good tiny_table null_operation null_claimed entry_fails open_fails open_silent other_name no_entry
    no_ops)
set(TUTTI_NOTE_KIND 3)
set(TUTTI_NOTE_VERSION 1.0)
set(TUTTI_NOTE_CUDA_MAJOR 0)
set(TUTTI_NOTE_ARCHITECTURES "")
set(defect 0)
foreach(name IN LISTS zoo_defects)
  set(TUTTI_NOTE_NAME ${name})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/note.c.in ${CMAKE_CURRENT_BINARY_DIR}/zoo-${name}-note.c @ONLY)
  add_library(zoo-${name} MODULE ${CMAKE_CURRENT_LIST_DIR}/../zoo/zoo.c ${CMAKE_CURRENT_BINARY_DIR}/zoo-${name}-note.c)
  target_compile_definitions(zoo-${name} PRIVATE ZOO_DEFECT=${defect} ZOO_NAME="${name}")
  target_link_libraries(zoo-${name} PRIVATE tutti_sdk)
  set_target_properties(zoo-${name} PROPERTIES PREFIX "" OUTPUT_NAME tutti-net-${name}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/zoo)
  math(EXPR defect "${defect} + 1")
  list(APPEND zoo_targets zoo-${name})
endforeach()

tutti_test(plugin_test SOURCES plugin_test.cpp)
add_dependencies(plugin_test ${zoo_targets} tutti-proto-ll tutti-algo-ring tutti-algo-direct tutti-proto-simple
                             tutti-tuner-model)
