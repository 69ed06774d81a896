# The zoo: one defective plugin per row of ../zoo/zoo.c, built without tutti_add_plugin()'s own checks.
set(zoo_defects good tiny_table null_operation null_claimed entry_fails open_fails open_silent other_name no_entry
                no_ops other_abi no_settings unresolved exports_more null_self short_ops short_claimed
                long_settings tiny_setting future_claim no_note)
set(TUTTI_NOTE_VERSION 1.0)
set(TUTTI_NOTE_CUDA_MAJOR 0)
set(TUTTI_NOTE_ARCHITECTURES "")

# add_zoo_plugin(<kind> <its number> <name> <sources>...)
function(add_zoo_plugin kind TUTTI_NOTE_KIND TUTTI_NOTE_NAME)
  set(note ${CMAKE_CURRENT_BINARY_DIR}/zoo-${TUTTI_NOTE_NAME}-note.c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/note.c.in ${note} @ONLY)
  if(TUTTI_NOTE_NAME STREQUAL no_note)
    set(note)
  endif()
  set(target zoo-${TUTTI_NOTE_NAME})
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_LIST_DIR}/../zoo/)
  add_library(${target} MODULE ${ARGN} ${note})
  target_link_libraries(${target} PRIVATE tutti_sdk)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:$<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>>)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME tutti-${kind}-${TUTTI_NOTE_NAME}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/zoo)
  set_property(GLOBAL APPEND PROPERTY TUTTI_ZOO ${target})
endfunction()

set(defect 0)
foreach(name IN LISTS zoo_defects)
  add_zoo_plugin(net 3 ${name} zoo.c)
  target_compile_definitions(zoo-${name} PRIVATE ZOO_DEFECT=${defect} ZOO_NAME="${name}")
  math(EXPR defect "${defect} + 1")
endforeach()
add_zoo_plugin(tuner 4 throws throws.cpp)
add_zoo_plugin(algo 1 declines declines.cpp)
add_zoo_plugin(algo 1 algo_throws algo_throws.cpp)
add_zoo_plugin(proto 2 proto_declines proto_declines.cpp)
add_zoo_plugin(tuner 4 tuner_declines tuner_declines.cpp)
foreach(name throws_early exits_early terminates_early)
  add_zoo_plugin(tuner 4 ${name} initialiser.cpp)
  target_compile_definitions(zoo-${name} PRIVATE ZOO_NAME="${name}")
  # In a folder of its own: a search path with it ends each command that looks into all plugins.
  set_target_properties(zoo-${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/zoo/early)
endforeach()
target_compile_definitions(zoo-throws_early PRIVATE "ZOO_EARLY=throw std::runtime_error(\"no legs\")")
target_compile_definitions(zoo-exits_early PRIVATE "ZOO_EARLY=std::exit(0)")
target_compile_definitions(zoo-terminates_early PRIVATE "ZOO_EARLY=std::terminate()")
get_property(zoo_targets GLOBAL PROPERTY TUTTI_ZOO)

tutti_test(plugin_test SOURCES plugin_test.cpp)
add_dependencies(plugin_test ${zoo_targets} plugins) # it loads the default configuration, which names many
# The text of a protocol that declines reaches the operator.
add_test(NAME explain_declined_layout COMMAND tutti_tool explain all_reduce --ranks 2 --set
  plugins.path=[${PROJECT_BINARY_DIR}/tests/zoo] --set "plugins.protocol=[simple, proto_declines]")
set_tests_properties(explain_declined_layout PROPERTIES PASS_REGULAR_EXPRESSION
  "proto_declines +excluded: protocol does not work over shared memory: slots must be round")
tutti_time_limit(30 explain_declined_layout)
tutti_test(sdk_network_test SOURCES sdk_network_test.cpp)

# The checks of tutti_add_plugin() after linking.
function(add_check_test name file says)
  add_test(NAME plugin_check_${name} COMMAND ${CMAKE_COMMAND} -DPLUGIN=${file} -DNM=${CMAKE_NM}
    -DREADELF=${CMAKE_READELF} -P ${PROJECT_SOURCE_DIR}/cmake/CheckPlugin.cmake)
  set_tests_properties(plugin_check_${name} PROPERTIES PASS_REGULAR_EXPRESSION "${says}")
  tutti_time_limit(30 plugin_check_${name})
endfunction()
add_check_test(exports_more $<TARGET_FILE:zoo-exports_more> "PLG-1.*tutti_zoo_leak")
add_check_test(no_entry $<TARGET_FILE:zoo-no_entry> "PLG-1.*TUTTI_PLUGIN")
add_check_test(no_note $<TARGET_FILE:zoo-no_note> "PLG-2")
add_check_test(no_file ${PROJECT_BINARY_DIR}/absent.so "absent.so: nm failed")
