# Programs that time Open MPI and Gloo the way `tutti bench` times Tutti; bench/host_vs_peers.py runs and compares them.
function(tutti_bench_peer name)
  add_executable(${name}_peer host_vs_peers/${name}_peer.cpp)
  target_link_libraries(${name}_peer PRIVATE tutti_options CLI11::CLI11 ${ARGN})
endfunction()

if(MPI_CXX_FOUND)
  tutti_bench_peer(mpi MPI::MPI_CXX)
endif()
if(GLOO_FOUND)
  tutti_bench_peer(gloo ${GLOO_LIBRARY} Threads::Threads)
  target_include_directories(gloo_peer SYSTEM PRIVATE ${GLOO_INCLUDE_DIR})
endif()
