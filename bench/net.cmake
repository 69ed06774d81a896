# net_bench: a network plugin alone, between two processes. socket_ping_pong: the bare TCP connection beside it.
# bench/net.py runs and compares them.
add_executable(net_bench net/main.cpp net/network.cpp net/telephone.cpp net/tests.cpp)
add_executable(socket_ping_pong net/ping_pong.cpp)
foreach(program net_bench socket_ping_pong)
  target_include_directories(${program} PRIVATE ${CMAKE_CURRENT_LIST_DIR})
  target_link_libraries(${program} PRIVATE tutti_core_static tutti_options CLI11::CLI11)
endforeach()
