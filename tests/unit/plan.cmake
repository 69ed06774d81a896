# The tests load the built algorithm plugins.
if(TARGET tutti-algo-ring AND TARGET tutti-algo-tree AND TARGET tutti-algo-direct AND TARGET tutti-algo-hier)
  set(here ${CMAKE_CURRENT_LIST_DIR})
  tutti_test(plan_test SOURCES ${here}/plan_test.cpp ${here}/plan_support.cpp)
  tutti_test(hier_test SOURCES ${here}/hier_test.cpp ${here}/plan_support.cpp)
  tutti_test(verify_test SOURCES ${here}/verify_test.cpp ${here}/plan_support.cpp ${here}/plan_reference.cpp
             ${here}/plan_reference_strands.cpp ${here}/plan_mutator.cpp TIMEOUT 60)
  tutti_test(strands_test SOURCES ${here}/strands_test.cpp ${here}/plan_support.cpp)
  tutti_test(order_strands_test SOURCES ${here}/order_strands_test.cpp ${here}/plan_support.cpp)
  tutti_test(verify_strands_test SOURCES ${here}/verify_strands_test.cpp ${here}/plan_support.cpp
             ${here}/plan_reference.cpp ${here}/plan_reference_strands.cpp ${here}/plan_mutator.cpp TIMEOUT 60)
  tutti_test(prove_test SOURCES ${here}/prove_test.cpp ${here}/plan_support.cpp TIMEOUT 60)
  tutti_test(repeat_test SOURCES ${here}/repeat_test.cpp ${here}/plan_support.cpp)
  tutti_test(tuner_model_test SOURCES ${here}/tuner_model_test.cpp ${here}/plan_support.cpp)
  tutti_test(selector_test SOURCES ${here}/selector_test.cpp ${here}/selector_strands_test.cpp ${here}/plan_support.cpp)
  tutti_test(plans_test SOURCES ${here}/plans_test.cpp ${here}/plan_support.cpp)
  tutti_test(detours_test SOURCES ${here}/detours_test.cpp ${here}/topology_machines.cpp)
  tutti_test(ports_test SOURCES ${here}/ports_test.cpp ${here}/plan_support.cpp
             ${here}/topology_machines.cpp)
  add_dependencies(ports_test tutti-algo-ring tutti-algo-tree tutti-algo-direct)
  tutti_test(encode_test SOURCES ${here}/encode_test.cpp ${here}/plan_support.cpp)
  tutti_test(lower_test SOURCES ${here}/lower_test.cpp ${here}/lower_meet_test.cpp ${here}/lower_strands_test.cpp
             ${here}/plan_support.cpp
             ${here}/program_calls.cpp OPTIMISED)
  tutti_test(number_messages_test SOURCES ${here}/number_messages_test.cpp)
  tutti_test(overlap_loops_test SOURCES ${here}/overlap_loops_test.cpp ${here}/plan_support.cpp
             ${here}/program_calls.cpp)
  tutti_test(split_messages_test SOURCES ${here}/split_messages_test.cpp ${here}/plan_support.cpp)
  tutti_test(fit_slots_test SOURCES ${here}/fit_slots_test.cpp ${here}/plan_support.cpp)
  tutti_test(scratch_memory_test SOURCES ${here}/scratch_memory_test.cpp)
  tutti_test(stripes_test SOURCES ${here}/stripes_test.cpp ${here}/plan_support.cpp ${here}/program_calls.cpp)
  tutti_test(launch_builder_test SOURCES ${here}/launch_builder_test.cpp ${here}/plan_support.cpp
             ${here}/program_calls.cpp)
  tutti_test(fuse_one_hop_test SOURCES ${here}/fuse_one_hop_test.cpp ${here}/plan_support.cpp ${here}/program_calls.cpp)
  tutti_test(direct_store_test SOURCES ${here}/direct_store_test.cpp ${here}/plan_support.cpp ${here}/program_calls.cpp)
  # The kernels' own code, on the CPU. ThreadSanitizer knows neither its contexts nor fences.
  if(NOT "thread" IN_LIST TUTTI_SANITIZE)
    set(emulator ${here}/kernel_machine.cpp ${here}/kernel_protocols.cpp ${here}/plan_support.cpp
        ${here}/program_calls.cpp ${here}/relayed_links.cpp ${here}/fake_network.cpp ${here}/private_memory.cpp
        ${PROJECT_SOURCE_DIR}/tests/emulator/cta.cpp)
    tutti_test(kernels_test SOURCES ${here}/kernels_test.cpp ${here}/lowered_kernels_test.cpp
               ${here}/kernels_strands_test.cpp ${here}/strand_waits_test.cpp ${here}/strand_plans.cpp
               ${here}/plan_mutator.cpp ${emulator}
               TIMEOUT 500 OPTIMISED)
    target_include_directories(kernels_test BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/emulator)
    set_source_files_properties(${here}/kernel_machine.cpp ${here}/strand_waits_test.cpp PROPERTIES
      COMPILE_OPTIONS "-Wno-conversion;-Wno-shadow;-Wno-unknown-pragmas;-ffp-contract=off") # nvcc sees to the warnings
    set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/emulator/cta.cpp PROPERTIES
      COMPILE_OPTIONS "-Wno-clobbered") # getcontext() returns once there
    set_source_files_properties(${here}/kernels_test.cpp PROPERTIES COMPILE_OPTIONS "-ffp-contract=off")
    add_dependencies(kernels_test tutti-algo-ring tutti-algo-tree tutti-algo-direct tutti-algo-hier)
    if(TARGET tutti-algo-recursive)
      target_sources(kernels_test PRIVATE ${here}/kernels_connections_test.cpp ${here}/kernels_recursive_test.cpp)
      add_dependencies(kernels_test tutti-algo-recursive)
    endif()
  endif()
  tutti_test(plan_algorithm_test SOURCES ${here}/plan_algorithm_test.cpp ${here}/plan_support.cpp)
  if(TARGET tutti-algo-recursive)
    tutti_test(recursive_test SOURCES ${here}/recursive_test.cpp ${here}/plan_support.cpp ${here}/plan_reference.cpp
               ${here}/plan_reference_strands.cpp TIMEOUT 60)
    add_dependencies(recursive_test tutti-algo-recursive)
  endif()
  tutti_test(alias_test SOURCES ${here}/alias_test.cpp)
  tutti_test(zero_copy_test SOURCES ${here}/zero_copy_test.cpp ${here}/plan_support.cpp)
  tutti_test(costs_test SOURCES ${here}/costs_test.cpp ${here}/plan_support.cpp)
  tutti_test(tuner_table_test SOURCES ${here}/tuner_table_test.cpp ${here}/plan_support.cpp)
  add_dependencies(tuner_table_test tutti-tuner-table)
  tutti_test(nccl_cost_table_test SOURCES ${here}/nccl_cost_table_test.cpp
             ${PROJECT_SOURCE_DIR}/plugins/tuner-nccl/cost_table.cpp)
  target_include_directories(nccl_cost_table_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
  tutti_test(as_copies_test SOURCES ${here}/as_copies_test.cpp ${here}/plan_support.cpp)
  target_link_libraries(tuner_model_test PRIVATE tutti_alpha_beta)
  target_link_libraries(selector_test PRIVATE tutti_alpha_beta)
  foreach(test plan_test plan_algorithm_test as_copies_test lower_test stripes_test launch_builder_test
          split_messages_test fit_slots_test fuse_one_hop_test
          direct_store_test hier_test verify_test prove_test repeat_test order_strands_test
          strands_test verify_strands_test tuner_model_test selector_test plans_test costs_test)
    add_dependencies(${test} tutti-algo-ring tutti-algo-tree tutti-algo-direct tutti-algo-hier)
  endforeach()
  add_dependencies(selector_test zoo-declines)
  tutti_test(declines_test SOURCES ${here}/declines_test.cpp ${here}/plan_support.cpp)
  add_dependencies(declines_test zoo-declines zoo-algo_throws zoo-proto_declines zoo-tuner_declines tutti-algo-ring
                   tutti-algo-tree tutti-algo-direct)
endif()
