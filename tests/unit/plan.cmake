# The tests load the built algorithm plugins.
if(TARGET tutti-algo-ring AND TARGET tutti-algo-direct)
  tutti_test(plan_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/plan_test.cpp ${CMAKE_CURRENT_LIST_DIR}/plan_support.cpp)
  tutti_test(verify_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/verify_test.cpp ${CMAKE_CURRENT_LIST_DIR}/plan_support.cpp
             ${CMAKE_CURRENT_LIST_DIR}/plan_reference.cpp TIMEOUT 300)
  foreach(test plan_test verify_test)
    add_dependencies(${test} tutti-algo-ring tutti-algo-direct)
  endforeach()
endif()
